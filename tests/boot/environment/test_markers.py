"""Markers without packaging mean what packaging says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.markers import Marker, default_environment
from packaging.specifiers import SpecifierSet

from trainer_boot.environment.markers import allows, holds, values_here

SIGNS = ["<", "<=", ">", ">=", "==", "!="]
PYTHONS = ["3.10", "3.11", "3.11.0", "3.11.7", "3.12", "3.12.1", "3.13.0", "3.14.0rc1", "4"]
COMPARISONS = st.one_of(
    st.builds("{} {} '{}'".format, st.sampled_from(["python_full_version", "python_version"]), st.sampled_from(SIGNS),
              st.sampled_from(PYTHONS)),
    st.builds("{} {} '{}'".format, st.sampled_from(["sys_platform", "platform_machine", "platform_system"]),
              st.sampled_from(["==", "!=", "in", "not in"]), st.sampled_from(["linux", "Linux", "x86_64", "aarch64"])),
    st.builds("'{}' {} sys_platform".format, st.sampled_from(["linux", "win32"]), st.sampled_from(["==", "!="])),
    st.builds("'{}' {} python_version".format, st.sampled_from(PYTHONS[:5]), st.sampled_from(SIGNS)),
)  # fmt: skip
MARKERS = st.lists(st.lists(COMPARISONS, min_size=1, max_size=3).map(" and ".join), min_size=1, max_size=3).map(
    " or ".join
)


@given(MARKERS, st.sampled_from(["3.11.7", "3.12.0", "3.13.1", "3.14.0rc1"]), st.sampled_from(["x86_64", "aarch64"]))
def test_the_same_verdict(marker: str, python: str, machine: str) -> None:
    values = {**values_here(), "python_full_version": python, "platform_machine": machine}
    values["python_version"] = ".".join(python.split(".")[:2])
    assert holds(marker, values) == Marker(marker).evaluate(values)


@given(
    st.lists(st.builds("{}{}".format, st.sampled_from([*SIGNS, "~="]), st.sampled_from(PYTHONS[:7])), max_size=3),
    st.sampled_from(PYTHONS[:7]),
)
def test_the_same_pythons(specifiers: list[str], python: str) -> None:
    text = ", ".join(specifiers)
    assert allows(text, python) == SpecifierSet(text).contains(python, prereleases=True)


def test_the_same_values() -> None:
    assert values_here() == {key: value for key, value in default_environment().items() if key != "extra"}


@pytest.mark.parametrize("marker", [None, "os_name == 'posix'", "python_version >= '3.11'"])
def test_plain_ones_need_no_packaging(marker: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "packaging.markers", None)
    assert holds(marker, values_here())
