"""Slices of the long proofs about imports: CPython's tests, the archive under a job, tracebacks."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.pyz.test_proofs import tool

VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


def test_python_s_own_tests_of_namespaces_and_readers() -> None:
    if find_spec("test.test_importlib") is None:
        pytest.skip("this Python comes without its tests")
    printed = tool("prove_importlib", "--python", VERSION, "--kinds", "minified", "--pattern", "amespace", "--no-json")
    assert "0 failed" in printed
    assert "'run': 0" not in printed


def test_the_archive_is_replaced_under_a_job() -> None:
    printed = tool("prove_archive", "--rounds", "1", "--kinds", "cp;mv;forks, rm;spawn, mv", "--no-json")
    assert "4 rounds, 0 wrong" in printed


def test_no_instruction_of_the_file_shows_another_line(pyz: Path) -> None:
    printed = tool("prove_tracebacks", "--static", "--python", VERSION, "--pyz", str(pyz), "--no-json")
    assert " 0 differ" in printed
