"""Markers put together along paths."""

import itertools

import pytest
from packaging.markers import Marker

from build.markers import ALWAYS, NEVER, both, either, parse, text

LINUX = "sys_platform == 'linux'"
OLD = "python_full_version < '3.12'"
NEW = "python_full_version >= '3.12'"


@pytest.mark.parametrize(
    ("marker", "expected"),
    [
        (None, None),
        (LINUX, LINUX),
        (f"{OLD} and ({LINUX} or os_name=='nt')", f"os_name == 'nt' and {OLD} or {OLD} and {LINUX}"),
        (f"{OLD} or {NEW}", None),
        (f"{LINUX} or {LINUX} and {OLD}", LINUX),
        ('"arm" not   in platform_machine', "'arm' not in platform_machine"),
        ("extra == 'asked' or extra == 'other'", None),
        (f"extra == 'asked' and {LINUX}", LINUX),
        (f"extra != 'other' and {LINUX}", LINUX),
    ],
)
def test_a_marker_is_written_simply(marker: str | None, expected: str | None) -> None:
    assert text(parse(marker, frozenset({"asked"}))) == expected


def test_what_never_holds_is_never() -> None:
    assert both(parse(OLD), parse(NEW)) == NEVER
    assert parse("extra == 'not asked'") == NEVER
    assert both(NEVER, ALWAYS) == NEVER


def test_composed_conditions_mean_what_they_say() -> None:
    markers = [LINUX, OLD, NEW, "platform_machine in 'x86_64 AMD64'", f"{LINUX} and {OLD} or sys_platform == 'win32'"]
    environments = [
        {"sys_platform": system, "python_full_version": version, "platform_machine": machine}
        for system in ("linux", "win32", "darwin")
        for version in ("3.11.7", "3.12.0", "3.13.1")
        for machine in ("x86_64", "arm64")
    ]
    for left, right in itertools.product(markers, repeat=2):
        for compose, combine in ((both, all), (either, any)):
            condition = compose(parse(left), parse(right))
            for environment in environments:
                want = combine(Marker(marker).evaluate(environment) for marker in (left, right))
                written = text(condition) if condition else "python_version < '0'"
                assert (written is None or Marker(written).evaluate(environment)) == want, (left, right, environment)


def test_the_text_does_not_depend_on_the_order() -> None:
    conditions = [parse(LINUX), parse(OLD), parse("platform_machine == 'arm64'")]
    texts = set()
    for first, second, third in itertools.permutations(conditions):
        texts.add(text(either(both(first, second), third)) if third == conditions[2] else None)
    assert len(texts - {None}) == 1
