"""Who may import whom, and what a start may not import."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "trainer"

# rooms of the trainer that know no sibling room
ALONE = {
    "data": {"schema", "user_code", "startup"},
    "checkpoint": set(),
    "metrics": set(),
    "models": {"schema", "user_code"},
}


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """(module, at module level) of every import statement; TYPE_CHECKING blocks do not count."""
    tree = ast.parse(path.read_text())
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            skipped.update(ast.walk(node))
    top = {node for statement in tree.body for node in _outside_functions(statement)}
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node in top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, node in top


def _outside_functions(statement: ast.AST) -> Iterator[ast.AST]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    yield statement
    for child in ast.iter_child_nodes(statement):
        yield from _outside_functions(child)


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def test_boot_knows_nothing_of_ours() -> None:
    for path in files(ROOT / "src" / "trainer_boot"):
        for module, _ in imports(path):
            assert module.split(".")[0] not in ("trainer", "build", "tests", "tools"), path


def test_the_build_tool_knows_only_the_format() -> None:
    for path in files(ROOT / "build"):
        for module, _ in imports(path):
            assert module.split(".")[0] not in ("trainer", "tests", "tools"), path
            if module.split(".")[0] == "trainer_boot":
                assert module == "trainer_boot.layout", f"{path}: {module}"


def test_the_trainer_reaches_start_up_through_one_door() -> None:
    for path in files(SOURCE):
        for module, _ in imports(path):
            assert module.split(".")[0] not in ("build", "tests", "tools"), path
            if module.split(".")[0] == "trainer_boot":
                assert path == SOURCE / "startup.py", path


@pytest.mark.parametrize("room", sorted(ALONE))
def test_rooms_know_no_sibling(room: str) -> None:
    allowed = {room, "errors", "settings", "safe_open"} | ALONE[room]
    for path in files(SOURCE / room):
        for module, _ in imports(path):
            parts = module.split(".")
            if parts[0] == "trainer" and len(parts) > 1:
                assert parts[1] in allowed, f"{path.relative_to(ROOT)} imports {module}"


def test_first_imports_are_light() -> None:
    """What answers --help or a misspelt key imports neither torch nor numpy nor dataclasses."""
    script = (
        "import sys; import trainer.cli, trainer.config, trainer.mesh, trainer.launch.detect, trainer.commands.train;"
        "from trainer.config import resolve; resolve('x', [('optim.lr', '1')], {}, '');"
        "print([m for m in ('torch', 'numpy', 'dataclasses', 'inspect', 'argparse', 'tqdm') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_answer_takes_next_to_nothing() -> None:
    """`--version` and `--help` import neither typing nor json, which take longer than all of ours."""
    script = "import sys, trainer.cli; print([m for m in ('typing', 'json', 'enum') if m in sys.modules])"
    words = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(SOURCE.parent)!r}); {script}"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_parent_of_ranks_never_imports_torch() -> None:
    script = "import sys, trainer.launch.local; print('torch' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"


@pytest.mark.parametrize("folder", ["src", "build", "tools"])
def test_files_can_be_read_in_one_sitting(folder: str) -> None:
    for path in files(ROOT / folder):
        assert len(path.read_text().splitlines()) <= 400, path
