"""Every optimizer on every sort of layout: resumed bit for bit, its state whole in checkpoints."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.beds.ranks import on_ranks
from tests.trainer.optim.runs import CASES, five, gone_on, looked_at, numbers_kept, stopped_and_straight
from tools import layouts
from trainer.config import resolve
from trainer.errors import UserError
from trainer.refuse import refuse_early
from trainer.schema import Optim

EMA = Optim(name="adamw", lr=0.01, clip=0.5, average="ema")
OPTIMIZERS = {**layouts.OPTIMIZERS, **layouts.MORE_OPTIMIZERS, "ema": EMA}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As on the ranks: threads wait for each other longer than they work on these sizes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(layout: str, optimizer: str, folder: Path) -> list[list[str]]:
    """Digests of the weights of a straight and of a resumed run, alike on all ranks."""
    arguments = (layout, OPTIMIZERS[optimizer], folder)
    if layout == "one":
        return stopped_and_straight(0, 1, *arguments)
    found: list[list[list[str]]] = on_ranks(CASES[layout].ranks, stopped_and_straight, *arguments)
    assert found[0] == found[1]
    return found[0]


def assert_same_checkpoints(first: Path, second: Path) -> None:
    """Weights and state; of groups, who is in them."""
    assert (first / "model.pt").read_bytes() == (second / "model.pt").read_bytes()
    one, other = (torch.load(each / "optimizer.pt") for each in (first, second))
    assert [group["parameters"] for group in one["groups"]] == [group["parameters"] for group in other["groups"]]
    assert one["parameters"].keys() == other["parameters"].keys()
    for name, mine in one["parameters"].items():
        theirs = other["parameters"][name]
        assert (mine["optimizer"], mine["shape"]) == (theirs["optimizer"], theirs["shape"])
        assert list(mine["state"]) == list(theirs["state"])
        for key, value in mine["state"].items():
            assert torch.equal(value, theirs["state"][key]), (name, key)


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
@pytest.mark.parametrize("layout", ["one", "ddp", "optimizer", "full"])
def test_two_updates_and_three_are_five(tmp_path: Path, layout: str, optimizer: str) -> None:
    straight, resumed = run(layout, optimizer, tmp_path)
    assert straight == resumed
    assert (straight[0] != straight[1]) == (optimizer in ("ema", "schedule_free"))
    assert_same_checkpoints(tmp_path / "two", tmp_path / "again")


def test_spread_state_gives_the_weights_and_checkpoints_of_whole_state(tmp_path: Path) -> None:
    found = {}
    for layout in ("ddp", "optimizer"):
        (tmp_path / layout).mkdir()
        found[layout] = run(layout, "adamw", tmp_path / layout)
    assert found["ddp"] == found["optimizer"]
    assert_same_checkpoints(tmp_path / "ddp" / "two", tmp_path / "optimizer" / "two")


def test_spread_state_goes_on_in_any_other_layout(tmp_path: Path) -> None:
    optim = OPTIMIZERS["adamw"]
    run("optimizer", "adamw", tmp_path)
    weights = {
        "one": gone_on(0, 1, "one", optim, tmp_path / "two"),
        **{name: on_ranks(2, gone_on, name, optim, tmp_path / "two")[0] for name in ("ddp", "optimizer", "full")},
    }
    for theirs in weights.values():
        for key, value in weights["ddp"].items():
            torch.testing.assert_close(theirs[key], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("layout", "optimizer"),
    [
        ("hybrid", "muon"),
        ("hybrid", "adafactor"),
        ("full", "lion"),
        ("full", "schedule_free"),
        ("full, tensor", "muon"),
        ("full, tensor", "adafactor"),
        ("full, tensor", "adamw"),
        ("optimizer, pipeline", "muon"),
    ],
)
def test_weights_that_are_cut_are_updated_as_whole_ones(layout: str, optimizer: str) -> None:
    optim = OPTIMIZERS[optimizer]
    expected = five(0, 1, "one", optim)
    for weights in on_ranks(CASES[layout].ranks, five, layout, optim):
        for name, value in weights.items():
            torch.testing.assert_close(value, expected[name], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("optimizer", ["ema", "schedule_free"])
def test_looking_at_averages_changes_nothing(optimizer: str) -> None:
    optim = OPTIMIZERS[optimizer]
    _, expected = looked_at(0, 1, "one", optim)
    for name in ("optimizer", "full"):
        for (untouched, looked), loss in on_ranks(2, looked_at, name, optim):
            assert untouched == looked
            assert loss == pytest.approx(expected, rel=1e-5)


def test_each_rank_keeps_the_state_of_some_weights() -> None:
    whole = numbers_kept(0, 1, "one", OPTIMIZERS["adamw"])
    first, second = on_ranks(2, numbers_kept, "optimizer", OPTIMIZERS["adamw"])
    assert first + second == whole
    assert 0.4 < first / whole < 0.6


def test_an_optimizer_of_ones_own_is_not_spread() -> None:
    settings = [("optim.build", "own.py:build"), ("parallel.strategy", "optimizer"), ("data.text", '["python:stdlib"]')]
    with pytest.raises(UserError, match=r"but optim\.build is own\.py:build") as found:
        refuse_early(resolve("here", settings, {}, "").config, 2)
    assert "Set parallel.strategy to gradients" in found.value.fix
