"""Room for frames: results and errors pass through, and the interpreter stops mapping memory at each call."""

import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from trainer_boot.frames import roomy

ROOT = Path(__file__).parent.parent.parent

# at some of these depths the border between two pieces lies below `tiny`
SCRIPT = """
    import sys
    from trainer_boot.frames import roomy

    def tiny():
        pass

    def deep(left):
        if left:
            return deep(left - 1)
        for _ in range(300):
            tiny()

    def work():
        for depth in range(500):
            deep(depth)

    roomy(work) if sys.argv[1] == "roomy" else work()
    """


def test_it_calls_the_function() -> None:
    assert roomy(divmod, 7, 2) == (3, 1)
    assert roomy(sorted, [1, 2], reverse=True) == [2, 1]
    with pytest.raises(ZeroDivisionError):
        roomy(divmod, 1, 0)


def test_calls_at_the_border_of_two_pieces_map_no_memory(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("there is no strace")

    def unmapped(way: str) -> int:
        words = ["strace", "-o", str(tmp_path / way), "-e", "trace=munmap"]
        words += [sys.executable, "-c", dedent(SCRIPT), way]
        done = subprocess.run(words, env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"strace can't trace here: {done.stderr.strip()[-100:]}")
        return (tmp_path / way).read_text().count("munmap(")

    assert unmapped("roomy") < 50 < 1000 < unmapped("plain")
