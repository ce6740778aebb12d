"""`check`: what a run file means and needs, without torch for built-in models."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.beds.runs import flags
from trainer.cli import main
from trainer.config import resolve
from trainer.models.check import count_parameters

BIG = [
    "--run.device", "cuda", "--model.layers", "48", "--model.width", "8192", "--model.heads", "64",
    "--model.vocabulary", "128256", "--model.bigram", "0", "--data.sequence", "4096", "--batch.size", "4096",
    "--batch.micro", "1", "--parallel.strategy", "full", "--optim.name", "adamw",
]  # fmt: skip


def test_a_world_that_is_not_there_needs_no_torch() -> None:
    script = (
        "import sys; from trainer.cli import main; main(sys.argv[1:]); "
        "print([name for name in ('torch', 'numpy') if name in sys.modules])"
    )
    words = ["check", "--world", "4096", "--memory", "80GiB", *BIG]
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "# layouts of 4096 ranks with 80.00 GiB each" in done.stdout
    assert "one parameter server's link would carry" in done.stdout


def test_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--world", "8", "--batch.size", "64", "--memory", "1GiB", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    config = resolve(None, [(f"{s}.{k}", str(v)) for s, k, v in [("model", "layers", 2)]], {}).config
    config.model.__dict__.update(found["config"]["model"])
    assert found["estimate"]["parameters"] == count_parameters(config.model, 257)
    assert found["layout"]["replicate"] == found["world"] == 8
    assert found["origins"]["batch.size"] == "--batch.size"
    assert sum(each["sent"] for each in found["estimate"]["sent"]) == found["estimate"]["sent_total"]
    assert max(each["total"] for each in found["estimate"]["moments"]) == found["estimate"]["memory"]["total"]
    assert found["suggestions"]


def test_what_is_printed_stays_a_run_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--world", "2", "--memory", "8GiB"]) == 0
    assert resolve("printed", [], {}, capsys.readouterr().out).config.model.width == 128


@pytest.mark.parametrize("strategy", ["ddp", "full"])
def test_a_model_of_ones_own_is_measured(tmp_path: Path, strategy: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.toml").touch()
    words = flags(precision__compute="fp32", batch__micro="1", parallel__strategy=strategy)
    assert main(["check", str(tmp_path / "run.toml"), *words, "--world", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["measured"]
    weights = 16 * 8 + 2 * (8 * 8 + 8) + 8 * 16
    assert found["numbers of weights"] == weights
    assert found["total"] > 4 * weights
    if strategy == "ddp":
        assert (found["parameter"], found["gradient"]) == (4 * weights, 2 * 4 * weights)


def test_suggestions_need_a_model_of_known_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.toml").touch()
    assert main(["check", str(tmp_path / "run.toml"), *flags(), "--memory", "1GiB"]) == 2
    assert "of known size" in capsys.readouterr().err
    assert main(["check", "--memory", "many"]) == 2
    assert "is not a size" in capsys.readouterr().err


def test_ranks_that_do_not_go_with_the_batch_are_told_and_answered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--world", "64"]) == 2
    told = capsys.readouterr()
    assert "# not possible         as set: 32 samples over 64 ranks; these figures are for batch.size = 64" in told.out
    assert "# memory per rank " in told.out
    assert "error: " in told.err
    assert "batch.size" in told.err
    assert "64" in told.err
    assert main(["check", "--world", "3", "--batch.micro", "4", "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["batch"]["size"] == 36
    assert found["problem"]["fix"]


def test_memory_needs_a_unit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--memory", "8"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: --memory: '8' has no unit",
        "fix: Write --memory 8GiB if you mean GiB.",
    ]
    assert main(["check", "--memory", "8192MiB"]) == 0
