"""Coverage of code in the file is that of its sources: same lines, told apart by the paths alone."""

import json
from pathlib import Path

import pytest

from tests.boot import bed

FILES: bed.Files = {
    "pack/__init__.py": "",
    "pack/part.py": '''\
        """A part."""
        # a comment, and below a function with a docstring


        def one(x):
            """One of two."""

            if x:
                return 1
            return 2  # never


        class Thing:
            """A thing."""

            def used(self):
                return [one(1) for _ in range(2)]

            def unused(self):
                assert self
                return 0
    ''',
    "app.py": "from pack.part import Thing\ndef main():\n    print(Thing().used())\n",
}
# coverage itself starts files of text only
START = """
import runpy, sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
SETTINGS = "[run]\nbranch = true\n[paths]\nsource =\n    {folder}\n    */app.pyz\n"


def test_the_report_of_the_file_is_that_of_its_sources(tmp_path: Path) -> None:
    pytest.importorskip("coverage")
    sources = tmp_path / "src"
    for path, content in FILES.items():
        (sources / path).parent.mkdir(parents=True, exist_ok=True)
        (sources / path).write_bytes(bed.bytes_of(content))
    (sources / "plain.py").write_text("import app\napp.main()\n")
    built = bed.archive(tmp_path / "app.pyz", FILES, "app:main", minify=True)
    (tmp_path / "start.py").write_text(START)
    settings = tmp_path / "settings"
    settings.write_text(SETTINGS.format(folder=sources))
    reports = []
    started: dict[str, list[str]] = {"plain": [f"{sources}/plain.py"], "bundled": [f"{tmp_path}/start.py", str(built)]}
    for name, program in started.items():
        data = [f"--rcfile={settings}", f"--data-file={tmp_path}/{name}"]
        words = ["-m", "coverage", "run", *data, "--include=*/pack/*", *program]
        assert bed.lines(bed.run(words, folder=tmp_path)) == ["[1, 1]"]
        combined = [f"--rcfile={settings}", f"--data-file={tmp_path}/{name}-combined"]
        bed.lines(bed.run(["-m", "coverage", "combine", *combined, f"{tmp_path}/{name}"], folder=tmp_path))
        bed.lines(bed.run(["-m", "coverage", "json", *combined, "-o", f"{name}.json"], folder=tmp_path))
        report = json.loads((tmp_path / f"{name}.json").read_text())
        reports.append({Path(path).name: file for path, file in report["files"].items()})
    assert reports[0]["part.py"]["missing_lines"] == [10, 20, 21]
    for kind in "executed_lines", "missing_lines", "executed_branches", "missing_branches":
        assert reports[1]["part.py"][kind] == reports[0]["part.py"][kind]
