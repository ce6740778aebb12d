"""What stands in for the compiler and for symbols answers as they do, and passes questions on once they are there."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from trainer_boot import overlays
from trainer_boot.overlays import changes, no_compiler, no_symbols

HERE = Path(__file__).parent


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A torch._dynamo to be put among the modules."""
    for name in [name for name in sys.modules if name.startswith(("torch._dynamo", "sympy"))]:
        monkeypatch.delitem(sys.modules, name)
    made = ModuleType("torch._dynamo")
    vars(made).update(OptimizedModule=type("OptimizedModule", (), {}), disable=lambda fn, **_: "disabled", utils=3)
    return made


def test_plain_numbers_are_answered_as_by_the_real_module() -> None:
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[2] / "src"), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, str(HERE / "answers.py")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    asked, differ = json.loads(done.stdout.splitlines()[-1])
    assert differ == []
    assert asked > 1000


def test_nothing_is_compiled_before_the_compiler_is_there(
    compiler: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = vars(compiler)["OptimizedModule"]()
    assert not isinstance(module, no_compiler.NotCompiled)
    assert no_compiler.__getattr__("utils").get_optimize_ddp_mode() == "ddp_optimizer"
    monkeypatch.setitem(sys.modules, "torch._dynamo", compiler)
    assert isinstance(module, no_compiler.NotCompiled)
    assert no_compiler.__getattr__("utils") == 3
    assert no_compiler.__getattr__("OptimizedModule") is type(module)


def test_a_function_is_its_own_version_without_the_compiler(
    compiler: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def function() -> None:
        return None

    disable = no_compiler.__getattr__("disable")
    assert disable(function, True, reason="a hook") is function
    setattr(function, no_compiler.KEPT, disable(function, True, wrapping=False))
    no_compiler.forget()
    assert no_compiler.KEPT not in vars(function)
    monkeypatch.setitem(sys.modules, "torch._dynamo", compiler)
    assert disable(function) == "disabled"


@pytest.mark.parametrize(("value", "cached"), [(None, True), ("1", True), ("0", False)])
def test_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch, value: str | None, cached: bool) -> None:
    name = "TORCH_FAKE_TENSOR_DISPATCH_CACHE"
    monkeypatch.delenv(name, raising=False)
    if value is not None:
        monkeypatch.setenv(name, value)
    settings = no_compiler._Settings()
    assert settings.fake_tensor_cache_enabled is cached
    monkeypatch.setenv(name, "0" if cached else "1")
    assert settings.fake_tensor_cache_enabled is cached
    assert settings.fake_tensor_cache_crosscheck_enabled is False


def test_nothing_is_an_expression_before_sympy_is_there(compiler: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not isinstance(3, no_symbols.__getattr__("Basic"))
    sympy = ModuleType("sympy")
    vars(sympy).update(Basic=int, Symbol=str)
    monkeypatch.setitem(sys.modules, "sympy", sympy)
    assert isinstance(3, no_symbols.__getattr__("Basic"))
    assert no_symbols.__getattr__("Symbol") is str


@pytest.mark.parametrize("module", [no_compiler, no_symbols])
def test_importlib_may_ask_them(compiler: ModuleType, module: ModuleType) -> None:
    with pytest.raises(AttributeError, match="__path__"):
        _ = module.__path__
    assert not {compiler.__name__, "sympy"} & set(sys.modules)


def test_a_spec_that_was_looked_for_only_is_changed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    version = ModuleType("torch.version")
    vars(version)["__version__"] = "2.15.1"
    monkeypatch.setitem(sys.modules, "torch.version", version)
    monkeypatch.setitem(sys.modules, "torch", sys.modules.get("torch") or ModuleType("torch"))
    room = ModuleType("trainer_boot.overlays.room")
    given: list[object] = []

    def put(spec: object) -> changes.Restore:
        given.append(spec)
        return lambda: None

    vars(room)["put"] = put
    monkeypatch.setitem(sys.modules, room.__name__, room)
    once, before = (overlays.Overlay("one", "torch.one", "room:put", before=before) for before in (False, True))
    for spec in (ModuleType("first"), ModuleType("second")):
        once.put_on(spec)
        before.put_on(spec)
    assert [str(vars(each)["__name__"]) for each in given if isinstance(each, ModuleType)] == [
        "first",
        "first",
        "second",
    ]
