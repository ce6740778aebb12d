"""Cores that may be used, under control groups of both versions."""

import os
from pathlib import Path

import pytest

from trainer.launch.cores import usable_cores


def lay_out(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 64),
        ({"proc/self/cgroup": "0::/\n"}, 64),
        ({"sys/fs/cgroup/cpu.max": "400000 100000\n"}, 4),  # no /proc
        (
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            3,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "400000 100000\n"}, 4),
        ({"proc/self/cgroup": "0::/job/step\n", "sys/fs/cgroup/job/step/cpu.max": "max 100000\n"}, 64),
        (
            {
                "proc/self/cgroup": "0::/job/step\n",
                "sys/fs/cgroup/job/step/cpu.max": "max 100000\n",
                "sys/fs/cgroup/job/cpu.max": "250000 100000\n",
            },
            2,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "9900000 100000\n"}, 64),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/docker/ab\n4:memory:/docker/ab\n0::/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            3,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            64,
        ),
    ],
)
def test_quota_limits_the_mask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    assert usable_cores(lay_out(tmp_path, files)) == expected


def test_of_this_process() -> None:
    assert 1 <= usable_cores() <= len(os.sched_getaffinity(0))
