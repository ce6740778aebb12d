"""What the counts of strace mean."""

import sys
from pathlib import Path

import pytest

from tools import startup_calls

LOG = """
100 newfstatat(AT_FDCWD</work>, "/usr/lib/a.py", {st_mode=S_IFREG|0644, st_size=10, ...}, 0) = 0
100 newfstatat(AT_FDCWD</work>, "/usr/lib/a.py", {st_mode=S_IFREG|0644, st_size=10, ...}, 0) = 0
100 newfstatat(AT_FDCWD</work>, "/usr/lib/none.py", 0x7ff, 0) = -1 ENOENT (No such file or directory)
100 openat(AT_FDCWD</work>, "/usr/lib/a.py", O_RDONLY|O_CLOEXEC) = 3</usr/lib/a.py>
100 openat(AT_FDCWD</work>, "/usr/lib/none.so", O_RDONLY|O_CLOEXEC) = -1 ENOENT (No such file or directory)
100 openat(AT_FDCWD</work>, "/proc/self/maps", O_RDONLY|O_CLOEXEC) = 4</proc/100/maps>
100 newfstatat(3</usr/lib/a.py>, "", {st_mode=S_IFREG|0644, st_size=10, ...}, AT_EMPTY_PATH) = 0
100 read(3</usr/lib/a.py>, "import os\\n", 4096) = 10
100 read(4</proc/100/maps>, "00400000-", 4096) = 9
101 getdents64(5</usr/lib>, 0x55 /* 20 entries */, 32768) = 600
101 mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 6</usr/lib/b.so>, 0) = 0x7f0000000000
101 mmap(0x7f0000001000, 8192, PROT_READ|PROT_EXEC, MAP_PRIVATE|MAP_FIXED, 6</usr/lib/b.so>, 0x1000) = 0x7f0000001000
101 mmap(NULL, 65536, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000100000
101 openat(7</usr/lib>, "c.py", O_RDONLY) = 8</usr/lib/c.py>
"""


def test_a_log_says_what_was_asked_of_the_shared_file_system() -> None:
    found = startup_calls.counted(LOG.strip().splitlines())
    # a.py, none.py, none.so, c.py, and a folder listed; 10 bytes read, and b.so up to 0x1000 + 8192
    assert found == {"opens": 2, "names": 5, "bytes": 10 + 0x3000}


def test_kinds_sum_up_to_all() -> None:
    kinds = startup_calls.kinds({"newfstatat": 5, "openat": 2, "getdents64": 1, "futex": 4, "total": 12})
    assert (kinds["stat"], kinds["open"], kinds["getdents"], kinds["other"]) == (5, 2, 1, 4)
    lines = startup_calls.table({"one": {"openat": 3, "total": 3}, "other": {"read": 7, "total": 9}})
    assert lines[0].split()[:4] == ["system", "calls", "stat", "open"]
    assert lines[2].split() == ["other", "0", "0", "0", "0", "0", "7", "0", "2", "9"]


def test_a_real_command_is_counted(tmp_path: Path) -> None:
    try:
        startup_calls.need_strace()
    except SystemExit as without:
        pytest.skip(str(without).splitlines()[0])
    script = "import os; [os.path.exists(f'/usr/none-{number}') for number in range(50)]"
    counts = startup_calls.count([sys.executable, "-c", script], tmp_path)
    kinds = startup_calls.kinds(counts)
    assert kinds["stat"] >= 50
    assert sum(value for kind, value in kinds.items() if kind != "total") == counts["total"]
    demand = startup_calls.demand([sys.executable, "-S", "-E", "-c", "pass"], tmp_path)
    assert demand["opens"] > 0
    assert demand["names"] > demand["opens"]
    assert demand["bytes"] > 10_000
