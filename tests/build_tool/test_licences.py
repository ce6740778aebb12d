"""What counts as the name of a licence in a bill of materials."""

import pytest
from packaging.metadata import RawMetadata

from build.licences import licences


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"license_expression": "mit or apache-2.0"}, [{"expression": "MIT OR Apache-2.0"}]),
        ({"license": "BSD-3-Clause"}, [{"expression": "BSD-3-Clause"}]),
        ({"license": "UNKNOWN"}, []),
        ({"license": "Copyright (c) 2020 Somebody"}, []),
        ({"classifiers": ["License :: OSI Approved"]}, []),
        ({"classifiers": ["License :: OSI Approved :: MIT License"]}, [{"expression": "MIT"}]),
        ({"classifiers": ["License :: OSI Approved :: BSD License"]}, [{"license": {"name": "BSD License"}}]),
        ({"license": "My Licence\n\nYou may ..."}, [{"license": {"name": "My Licence"}}]),
        ({}, []),
    ],
)
def test_a_name_is_short_and_says_which_licence_it_is(said: RawMetadata, found: list[object]) -> None:
    assert list(licences(said)) == found
