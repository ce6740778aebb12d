"""The report adds up to the file."""

from pathlib import Path

from build.cache import Cache
from build.compile import compile_code
from build.interpreters import find_interpreters
from build.minify import Policy, minify
from build.reach import Reach
from build.report import report, table
from build.tree import File, Tree
from build.write import write
from tests.build_tool.minify_bed import ROOT, module


def test_every_byte_is_accounted_for(tmp_path: Path) -> None:
    boot = ROOT / "src" / "trainer_boot"
    files = [module(f"trainer_boot/{path.name}", path.read_bytes(), "own") for path in sorted(boot.glob("*.py"))]
    files += [module("app.py", "'''doc'''\nx = 1  # one\n", "own"), module("lib.py", "y = 2  # two\n" * 50, "lib")]
    tree, _ = minify(Tree.of([*files, File("lib/data.txt", b"data", "lib")]), Policy(), tmp_path / "cache")
    sections = compile_code(tree, find_interpreters([]), Cache(tmp_path / "code"))
    data = write(tree, sections, {}, entry="app")
    gone = module("lib_more.py", "z = 3\n", "lib")
    found = report(tree, sections, Reach((gone,), {"own": "app.py, line 1: import_module of a computed name"}), data)
    parts, packages = found["parts"], found["packages"]
    assert isinstance(parts, dict)
    assert isinstance(packages, dict)
    assert sum(parts.values()) == found["bytes"] == len(data)
    version = sections[0].interpreter.version
    assert packages["own"]["modules"] == len(files) - 1
    assert packages["lib"]["text"] == 13 * 50
    assert packages["lib"]["minified"] == 4 * 50
    assert packages["lib"]["data deflated"] == 4
    assert packages["own"]["code"][version] + packages["lib"]["code"][version] == sum(
        len(code) for _, code in sections[0].codes
    )
    assert found["left_out"] == {"lib": {"modules": ["lib_more"], "bytes": 6}}
    assert "import_module" in str(found["whole"])
    lines = table(found).splitlines()
    assert lines[0].split()[-2:] == ["code", version]
    assert [line.split()[0] for line in lines[1:4]] == ["lib", "own", "total"]
    assert any(line.startswith("minified modules") for line in lines)
