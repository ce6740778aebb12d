"""An archive that many processes read at once, and one that is replaced while a job runs from it."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.boot import bed

COUNT = 30
MODULES: bed.Files = {
    "lazy/__init__.py": "",
    **{f"lazy/m{i:02d}.py": f"VALUE = {i}\nPAD = {f'pad{i:02d} ' * 200!r}\n" for i in range(COUNT)},
}
LOAD = """
    import importlib, os, random, sys, time
    from lazy import m00
    def load(seed):
        names = [f"m{i:02d}" for i in range(30)]
        random.Random(seed).shuffle(names)
        total = 0
        for name in names:
            module = importlib.import_module("lazy." + name)
            assert module.PAD.split()[0] == "pad" + name[1:]
            total += module.VALUE
        return total
"""
FORKS = (
    LOAD
    + """
    import shutil, threading
    bad = 0
    for turn in range(3):
        children = []
        for seed in range(8):
            child = os.fork()
            if not child:
                status = 1
                try:
                    status = int(load(seed) != sum(range(30)))
                finally:
                    os._exit(status)
            children.append(child)
        bad += sum(os.waitpid(child, 0)[1] != 0 for child in children)
    print(bad)
"""
)
SLOW = (
    LOAD
    + """
    print("READY", flush=True)
    sys.stdin.readline()
    print(load(0))
"""
)


def test_forked_children_import_at_the_same_time(tmp_path: Path) -> None:
    place = bed.archive(tmp_path / "app.pyz", {**MODULES, "app.py": FORKS})
    assert bed.lines(bed.run(place)) == ["0"]


def replaced(tmp_path: Path, how: str, changed: str) -> "tuple[int, str, str]":
    """Status, output and errors of a job whose archive was replaced after its first imports."""
    place = bed.archive(tmp_path / "app.pyz", {**MODULES, "app.py": SLOW})
    job = subprocess.Popen(
        [sys.executable, "-s", place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with job:
        assert job.stdin is not None and job.stdout is not None
        assert job.stdout.readline() == "READY\n"
        new = bed.archive(tmp_path / "new.pyz", {**MODULES, "app.py": SLOW, "lazy/m15.py": changed})
        if how == "cp":
            shutil.copyfile(new, place)
        elif how == "mv":
            new.replace(place)
        elif how == "rm":
            place.unlink()
        elif how == "truncate":
            os.truncate(place, 2000)
        output, errors = job.communicate("go\n", timeout=100)
    return job.returncode, output, errors


@pytest.mark.parametrize("how", ["mv", "rm"])
def test_replacing_by_rename_does_no_harm(tmp_path: Path, how: str) -> None:
    assert replaced(tmp_path, how, "VALUE = 15000\nPAD = 'pad15 '\n") == (0, f"{sum(range(COUNT))}\n", "")


def test_overwriting_is_told(tmp_path: Path) -> None:
    status, output, errors = replaced(tmp_path, "cp", "VALUE = 15000\nPAD = 'pad15 '\n")
    assert (status, output) == (1, "")
    assert "app.pyz has changed since this process started" in errors
    assert "with mv" in errors


def test_cutting_it_off_is_told(tmp_path: Path) -> None:
    status, output, errors = replaced(tmp_path, "truncate", "")
    assert (status, output) == (1, "")
    assert "app.pyz was damaged after it was built" in errors
    assert "excepthook" not in errors


def test_overwriting_with_the_same_sizes_is_told(tmp_path: Path) -> None:
    """The changed module has as many bytes as before, and every other one lies where it lay."""
    changed = str(MODULES["lazy/m15.py"]).replace("VALUE = 15", "VALUE = 16")
    status, output, errors = replaced(tmp_path, "cp", changed)
    assert (status, output) == (1, "")
    assert "app.pyz has changed since this process started" in errors


def test_the_same_build_copied_over_goes_on(tmp_path: Path) -> None:
    assert replaced(tmp_path, "cp", str(MODULES["lazy/m15.py"]))[:2] == (0, f"{sum(range(COUNT))}\n")


def test_a_closed_descriptor_is_opened_again(tmp_path: Path) -> None:
    """Daemons close every descriptor that they find, and the number may belong to another file afterwards."""
    files: bed.Files = {
        **MODULES,
        "app.py": LOAD
        + """
    os.closerange(3, 100)
    print(load(1))
    held = [open(os.devnull) for _ in range(20)]
    os.closerange(3, 100)
    held = [os.open(sys.executable, os.O_RDONLY) for _ in range(20)]
    import lazy.late
    print(lazy.late.VALUE)
    os._exit(0) if sys.stdout.flush() is None else None
""",
        "lazy/late.py": "VALUE = 'late'",
    }
    place = bed.archive(tmp_path / "app.pyz", files)
    assert bed.lines(bed.run(place)) == [str(sum(range(COUNT))), "late"]


WORKERS: bed.Files = {
    "work/__init__.py": "",
    "work/task.py": """
        import multiprocessing, os, sys
        def served(_):
            finders = [type(finder).__name__ for finder in sys.meta_path]
            import work.late
            return finders.count("BundleFinder"), type(work.late.__loader__).__name__, os.getpid()
        def nested(method):
            with multiprocessing.get_context(method).Pool(1) as pool:
                return pool.map(served, [0])[0]
    """,
    "work/late.py": "",
    "app.py": """
        import multiprocessing, os, sys
        from concurrent.futures import ProcessPoolExecutor
        from work.task import served, nested
        def main():
            for method in "fork", "spawn", "forkserver":
                context = multiprocessing.get_context(method)
                with context.Pool(2) as pool:
                    for count, loader, number in pool.map(served, range(2), chunksize=1):
                        print(method, count, loader, number != os.getpid())
                with ProcessPoolExecutor(1, context) as pool:
                    print(method, *pool.submit(served, 0).result()[:2], *pool.submit(nested, "spawn").result()[:2])
    """,
}


def test_children_of_every_kind_have_the_finder(tmp_path: Path) -> None:
    place = bed.archive(tmp_path / "app.pyz", WORKERS, "app:main")
    expected = []
    for method in "fork", "spawn", "forkserver":
        expected += [f"{method} 1 BundleLoader True"] * 2 + [f"{method} 1 BundleLoader 1 BundleLoader"]
    assert bed.lines(bed.run([Path("app.pyz")], folder=tmp_path)) == expected
    if other := bed.other_python():
        slow = [line.replace("BundleLoader", "SourceLoader") for line in expected]
        assert bed.lines(bed.run(place, python=other)) == slow


LATER: bed.Files = {
    **WORKERS,
    "work/late.py": "OLD = 1",
    "app.py": """
        import multiprocessing, os, shutil, sys
        from concurrent.futures import ProcessPoolExecutor
        from work.task import nested, served
        def main():
            if sys.argv[1] == "cp":
                shutil.copyfile(sys.argv[2], sys.argv[0])
            elif sys.argv[1] == "mv":
                os.replace(sys.argv[2], sys.argv[0])
            else:
                os.unlink(sys.argv[0])
            for method in "spawn", "forkserver":
                with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
                    answers = pool.submit(served, 0), pool.submit(nested, "spawn"), pool.submit(old)
                    print(answers[0].result()[:2], answers[1].result()[:2], answers[2].result())
        def old():
            import __main__, work.late
            return work.late.OLD, __main__.__file__ == sys.argv[0], work.late.__file__.startswith(sys.argv[0])
    """,
}


@pytest.mark.parametrize("how", ["mv", "rm"])
def test_children_have_their_parent_s_build(tmp_path: Path, how: str) -> None:
    """By spawn a child opens the archive anew; what its parent sends it is of the parent's build."""
    for python in filter(None, (sys.executable, bed.other_python())):
        new = bed.archive(tmp_path / "new.pyz", {**LATER, "work/late.py": "NEW = 1"}, "app:main")
        place = bed.archive(tmp_path / "app.pyz", LATER, "app:main")
        loader = "BundleLoader" if python == sys.executable else "SourceLoader"
        expected = [f"(1, '{loader}') (1, '{loader}') (1, True, True)"] * 2
        assert bed.lines(bed.run(place, how, str(new), python=python)) == expected


def test_there_is_no_child_where_the_build_is_gone(tmp_path: Path) -> None:
    """A pool would start it again for ever."""
    new = bed.archive(tmp_path / "new.pyz", {**LATER, "work/late.py": "NEW = 1"}, "app:main")
    done = bed.run(bed.archive(tmp_path / "app.pyz", LATER, "app:main"), "cp", str(new))
    assert (done.returncode, done.stdout) == (1, "")
    error, fix = done.stderr.splitlines()
    assert "has changed since this process started" in error
    assert "with mv" in fix


def test_a_job_started_from_a_job_may_be_of_another_build(tmp_path: Path) -> None:
    files: bed.Files = {
        "app.py": "import subprocess, sys\nif sys.argv[1:]: subprocess.run([sys.executable, *sys.argv[1:]])\nA = 1\n"
    }
    other = bed.archive(tmp_path / "other.pyz", {"app.py": "print('other')"})
    assert bed.lines(bed.run(bed.archive(tmp_path / "app.pyz", files), str(other))) == ["other"]


def test_start_and_end_are_quick(tmp_path: Path) -> None:
    """Nothing waits: a start is well under a second even on a busy machine."""
    place = bed.archive(tmp_path / "app.pyz", {"app.py": "A = 1"})
    start = time.monotonic()
    bed.lines(bed.run(place))
    assert time.monotonic() - start < 5
