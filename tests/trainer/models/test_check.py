"""Sizes that fit together, and counting parameters without building."""

import subprocess
import sys

import pytest

from trainer.errors import UserError
from trainer.models.check import check_model, count_parameters, hidden_width
from trainer.schema import Model


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (Model(width=100, heads=3), ["model.width = 100", "model.heads = 3"]),
        (Model(width=12, heads=4), ["3 wide"]),
        (Model(width=64, heads=4, kv_heads=3), ["model.heads = 4", "model.kv_heads = 3"]),
        (Model(vocabulary=60000), ["69999", "60000"]),
        (Model(bigram=1), ["model.bigram is 1"]),
        (Model(dropout=1.0), ["model.dropout"]),
        (Model(kind="mlp", classes=3), ["model.inputs"]),
        (Model(kind="mlp", inputs=3), ["model.classes"]),
    ],
)
def test_sizes_that_do_not_fit_are_refused_with_a_fix(model: Model, names: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        check_model(model, 70000)
    assert caught.value.status == 2
    assert caught.value.fix
    for name in names:
        assert name in caught.value.what


def test_what_fits_passes_and_own_models_are_not_judged() -> None:
    check_model(Model(), 257)
    check_model(Model(vocabulary=300), 257)
    check_model(Model(vocabulary=60000))  # data not seen yet
    check_model(Model(kind="mlp", inputs=4, classes=2))
    check_model(Model(build="mine.py:build", width=100, heads=3), 257)


def test_hidden_width_is_a_multiple_of_32_near_eight_thirds() -> None:
    assert hidden_width(Model(width=128)) == 352
    assert hidden_width(Model(width=768)) == 2048
    assert hidden_width(Model(hidden=100)) == 100


def test_an_own_model_is_not_counted() -> None:
    with pytest.raises(UserError, match="not known"):
        count_parameters(Model(build="mine.py:build"), 257)


def test_no_torch_for_checks_and_counts() -> None:
    code = (
        "import sys, trainer.models, trainer.optim; from trainer.models.check import check_model, count_parameters\n"
        "from trainer.schema import Model, Optim\n"
        "check_model(Model(), 257); count_parameters(Model(), 257); trainer.optim.learning_rate(Optim(), 0, 10)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
