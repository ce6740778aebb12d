"""What is refused before torch is imported."""

import subprocess
import sys

import pytest

from trainer.config import resolve
from trainer.errors import UserError
from trainer.refuse import refuse_early


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("optim.betas", "0.9"),
        ("optim.betas", "0.9,1.0"),
        ("optim.momentum", "1"),
        ("optim.final", "2"),
        ("optim.decay", "1.5"),
        ("model.dropout", "1"),
        ("model.heads", "3"),
        ("model.kv_heads", "3"),
    ],
)
def test_values_that_do_not_fit_together_name_the_setting(flag: str, value: str) -> None:
    config = resolve(None, [("data.text", "x"), (flag, value)], {}).config
    with pytest.raises(UserError) as caught:
        refuse_early(config, 1)
    assert caught.value.status == 2
    assert flag in caught.value.what


def test_a_run_without_data_is_refused() -> None:
    with pytest.raises(UserError, match="no training data"):
        refuse_early(resolve(None, [], {}).config, 1)


def test_none_of_it_imports_torch() -> None:
    script = "import sys, trainer.refuse; print('torch' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"


@pytest.mark.parametrize(
    ("settings", "what", "fix"),
    [
        ({"precision.gathered": "compute"}, "gathers no weights", "Set parallel.strategy to full"),
        ({"precision.compute": "fp8", "run.device": "cpu"}, "compute capability 8.9", "Set precision.compute to bf16"),
        (
            {"parallel.compress": "bf16", "parallel.strategy": "full"},
            "is for parallel.strategy ddp",
            "remove parallel.compress",
        ),
        (
            {"parallel.compress": "bf16", "precision.weights": "bf16"},
            "bf16 weights in fp32",
            "precision.weights to fp32",
        ),
        ({"parallel.static_graph": "true", "batch.micro": "4"}, "makes 4", "Set batch.micro to 16"),
        ({"parallel.static_graph": "true", "parallel.unused": "find"}, "contradict each other", "one of them"),
        (
            {"parallel.compress": "powersgd", "precision.compute": "fp16"},
            "does not support fp16",
            "parallel.compress to fp16",
        ),
    ],
)
def test_formats_that_do_not_go_together_are_refused(settings: dict[str, str], what: str, fix: str) -> None:
    config = resolve(None, [("data.text", "x"), *settings.items()], {}).config
    with pytest.raises(UserError) as caught:
        refuse_early(config, 2)
    assert caught.value.status == 2
    assert what in caught.value.what
    assert fix in caught.value.fix
