"""What a run will need, by arithmetic: against counts by hand, and against torch's own tracker."""

import pytest

from tests.beds.ranks import on_ranks
from tools.prove_estimates import CASES, LIMIT, measured, predicted
from trainer.errors import UserError
from trainer.estimate.bubble import idle_share, in_flight
from trainer.estimate.job import Formats, Job
from trainer.estimate.memory import moments, peak
from trainer.estimate.parts import parts_of
from trainer.estimate.report import parse_size, size
from trainer.estimate.stages import stages_of_rank
from trainer.estimate.suggest import suggestions
from trainer.estimate.traffic import parameter_server, total, traffic
from trainer.mesh import Layout
from trainer.models.check import count_parameters
from trainer.schema import Model

GPT = Model(kind="gpt", layers=8, width=64, heads=8, vocabulary=1000)
WEIGHTS = count_parameters(GPT, 0)


def job(layout: Layout, **changes: object) -> Job:
    values: dict[str, object] = {
        "micro": 2,
        "forwards": 1,
        "sequence": 32,
        "formats": Formats("fp32", "fp32", "auto", "cpu"),
    }
    return Job(layout=layout, **(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "model",
    [
        GPT,
        Model(kind="gpt", layers=3, width=48, heads=4, kv_heads=2, tied=True, qk_norm=True, bigram=77, vocabulary=99),
        Model(kind="vit", layers=3, width=48, heads=4, image=16, classes=5),
        Model(kind="mlp", layers=3, width=20, inputs=7, classes=5),
    ],
)
def test_parts_make_the_whole(model: Model) -> None:
    assert parts_of(model, 0, job(Layout())).weights == count_parameters(model, 0)


@pytest.mark.parametrize("name", ["one rank, bf16", "full, many layers", "tensor", "pipeline 2 1f1b"])
def test_the_peak_is_what_torch_measures(name: str) -> None:
    case = next(each for each in CASES if each.name == name)
    found = [measured(0, 1, case)] if case.ranks == 1 else on_ranks(case.ranks, measured, case)
    assert predicted(case).total == pytest.approx(max(each["Total"] for each in found), rel=LIMIT)


def test_each_strategy_keeps_its_part() -> None:
    kept = {}
    for strategy, layout in (
        ("ddp", Layout(replicate=4)),
        ("optimizer", Layout(replicate=4)),
        ("gradients", Layout(shard=4)),
        ("full", Layout(shard=4)),
    ):
        here = job(layout, strategy=strategy)
        found = moments(here, parts_of(GPT, 0, here), 0)[-1]
        kept[strategy] = [found.parameters, found.gradients, found.optimizer]
    assert kept == {
        "ddp": [4 * WEIGHTS, 4 * WEIGHTS, 8 * WEIGHTS],
        "optimizer": [4 * WEIGHTS, 4 * WEIGHTS, 2 * WEIGHTS],
        "gradients": [WEIGHTS, WEIGHTS, 2 * WEIGHTS],
        "full": [WEIGHTS, WEIGHTS, 2 * WEIGHTS],
    }


def test_recomputation_keeps_less() -> None:
    kept = []
    for recompute in ("none", "selective", "every", "full"):
        here = job(Layout(), recompute=recompute)
        found = moments(here, parts_of(GPT, 0, here), 0)
        kept.append(next(each.activations for each in found if each.name == "loss"))
    none, selective, every, full = kept
    assert none > selective > full
    assert none > every > full


def sent(layout: Layout, **changes: object) -> dict[tuple[str, str, str], int]:
    here = job(layout, **changes)
    found = traffic(here, parts_of(GPT, 0, here))
    assert total(found) == sum(each.sent for each in found)
    return {(each.over, each.collective, each.what): each.sent for each in found if each.over != "world"}


def test_what_data_parallelism_sends() -> None:
    size, number = 4 * WEIGHTS, 4
    assert sent(Layout(replicate=number)) == {("replicate", "all-reduce", "gradients"): 2 * 3 * size // 4}
    here = job(Layout(replicate=number))
    assert parameter_server(here, parts_of(GPT, 0, here)) == 2 * 3 * size
    full = sent(Layout(shard=number), strategy="full")
    blocks = 4 * (WEIGHTS - 2 * 1000 * 64 - 64)
    assert full["shard", "reduce-scatter", "gradients"] == 3 * size // 4
    assert full["shard", "all-gather", "weights of blocks"] == 2 * 3 * blocks // 4
    gradients = sent(Layout(shard=number), strategy="gradients", forwards=3)
    assert gradients["shard", "all-gather", "weights of blocks"] == 3 * 3 * blocks // 4
    hybrid = sent(Layout(replicate=2, shard=2), strategy="full")
    assert hybrid["replicate", "all-reduce", "gradients"] == size // 2


def test_what_the_other_degrees_send() -> None:
    edge = 2 * 32 * 64 * 4
    assert sent(Layout(pipeline=4), forwards=8) == {
        ("pipeline", "send", "activations and their gradients"): 2 * 8 * edge
    }
    assert sent(Layout(tensor=2)) == {("tensor", "all-reduce", "activations"): (8 * 4 + 2) * edge}
    halves = sent(Layout(tensor=2), sequence_parallel=True)
    assert sum(halves.values()) == (8 * 4 + 2) * edge


@pytest.mark.parametrize(
    ("schedule", "of_all", "of_ideal"),
    [
        ("gpipe", 3 / 11, 3 / 8),
        ("1f1b", 3 / 11, 3 / 8),
        ("interleaved", 1.5 / 9.5, 1.5 / 8),
        ("zbv", 0.5 / 8.5, 0.5 / 8),
        ("dualpipev", 1 / 9, 1 / 8),
    ],
)
def test_idle_time_is_counted_both_ways(schedule: str, of_all: float, of_ideal: float) -> None:
    assert idle_share(schedule, 4, 8) == pytest.approx((of_all, of_ideal))
    assert idle_share(schedule, 1, 8) == (0.0, 0.0)


def test_micro_batches_in_flight() -> None:
    assert [in_flight("gpipe", 4, stage, 8) for stage in range(4)] == [8, 8, 8, 8]
    assert [in_flight("1f1b", 4, stage, 8) for stage in range(4)] == [4, 3, 2, 1]
    assert in_flight("1f1b", 4, 0, 2) == 2


def test_ranks_have_the_stages_that_a_pipeline_would_give_them() -> None:
    def blocks(ranks: int, **changes: object) -> list[list[list[int]]]:
        here = job(Layout(pipeline=ranks), forwards=8, **changes)
        parts = parts_of(GPT, 0, here)
        return [[list(stage.blocks) for stage in stages_of_rank(here, parts, rank)] for rank in range(ranks)]

    # the output is worth more than a block
    assert blocks(2) == [[[0, 1, 2, 3, 4]], [[5, 6, 7]]]
    assert blocks(2, cut=[7, 1]) == [[[0, 1, 2, 3, 4, 5, 6]], [[7]]]
    there, back = blocks(2, schedule="zbv", cut=[1, 2, 4, 1])
    assert there == [[0], [7]] and back == [[1, 2], [3, 4, 5, 6]]
    ends = [
        stages_of_rank(job(Layout(pipeline=2), schedule="zbv"), parts_of(GPT, 0, job(Layout())), rank)
        for rank in (0, 1)
    ]
    assert [(stage.first, stage.last, stage.sends) for stage in ends[0]] == [(True, False, False), (False, True, True)]
    assert [(stage.first, stage.last, stage.sends) for stage in ends[1]] == [
        (False, False, True),
        (False, False, False),
    ]


def test_suggestions_fit_and_none_is_beaten() -> None:
    here = job(Layout(replicate=16), micro=4)
    alone = peak(job(Layout(), micro=4, forwards=16), parts_of(GPT, 0, here)).total
    found = suggestions(here, GPT, 0, 16, alone // 2, 64)
    assert found
    assert all(each.peak <= alone // 2 and each.layout.world_size == 16 for each in found)
    assert [each.sent for each in found] == sorted(each.sent for each in found)
    assert not any(each.beaten_by(other) for each in found for other in found)
    assert suggestions(here, GPT, 0, 16, 1000, 64) == []
    several = suggestions(job(Layout(replicate=16), micro=4, schedule="interleaved"), GPT, 0, 16, alone, 64)
    assert {each.layout.pipeline for each in several} & {2, 4}
    assert all(2 * each.layout.pipeline <= GPT.layers for each in several if each.layout.pipeline > 1)


def test_sizes_are_read_and_written() -> None:
    assert parse_size("80GiB", "--memory") == parse_size("80 g", "--memory") == 80 * 2**30
    assert parse_size("80GB", "--memory") == 80 * 10**9
    assert parse_size("1.5k", "--memory") == 1536
    assert [size(512), size(1536), size(3 * 2**40)] == ["512 B", "1.50 KiB", "3.00 TiB"]
    for wrong in ("", "GiB", "80 bananas", "-1GiB", "80xGB"):
        with pytest.raises(UserError, match="is not a size"):
            parse_size(wrong, "--memory")
