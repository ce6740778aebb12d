"""Code of bundled dependencies is deflated in the archive; nothing else tells."""

from dataclasses import replace
from pathlib import Path

from build.write import write
from tests.boot import bed

FILES: bed.Files = {
    "dependency/__init__.py": "from dependency.table import TABLE\n",
    "dependency/table.py": "TABLE = [\n"
    + "".join(f"    ({number}, 'row {number}'),\n" for number in range(2000))
    + "]\n",
    "app.py": """
        import inspect, sys, dependency.table, trainer_boot.finder
        loader = dependency.table.__loader__
        print(len(dependency.TABLE), 'zlib' in sys.modules)
        print(loader.modules['dependency.table'][1], loader.modules['app'][1])
        print(loader.get_code('dependency.table').co_filename)
        print(len(inspect.getsource(dependency.table)))
    """,
}


def test_dependencies_are_deflated(tmp_path: Path) -> None:
    tree = bed.tree_of(FILES)
    tree = tree.map(lambda file: replace(file, package="other") if "dependency" in file.path else file)
    sections = bed.code_of(tree)
    place = tmp_path / "app.pyz"
    place.write_bytes(write(tree, sections, {}, entry="app"))
    printed = bed.lines(bed.run(place))
    codes = dict(sections[0].codes)
    small, own = map(int, printed[1].split())
    assert printed[0] == "2000 True"
    assert small < 0.6 * len(codes["dependency.table"])
    assert own == len(codes["app"])
    assert printed[2] == f"{place}/dependency/table.py"
    assert int(printed[3]) == len(FILES["dependency/table.py"])


def test_what_a_start_runs_is_not(tmp_path: Path) -> None:
    files = {"app.py": "import sys; print('zlib' in sys.modules)"}
    assert bed.lines(bed.run(bed.archive(tmp_path / "app.pyz", files))) == ["False"]
