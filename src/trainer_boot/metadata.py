"""importlib.metadata over the archive: the distributions that were bundled with their `.dist-info`."""

from __future__ import annotations

import re
from importlib.metadata import Distribution, DistributionFinder
from typing import TYPE_CHECKING

from trainer_boot.resources import BundlePath

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from trainer_boot.finder import Archive


class BundleDistribution(Distribution):
    """One of them, by the name of its folder."""

    def __init__(self, archive: Archive, folder: str) -> None:
        self._archive = archive
        self._folder = folder

    def read_text(self, filename: str | PathLike[str]) -> str | None:
        """A file of its metadata; None if it has none of that name."""
        path = BundlePath(self._archive, self._folder).joinpath(filename)
        return path.read_text(encoding="utf-8") if path.is_file() else None

    def locate_file(self, path: str | PathLike[str]) -> BundlePath:
        """Where a file that it lists lies."""
        return BundlePath(self._archive, "").joinpath(path)


def find(archive: Archive, context: DistributionFinder.Context) -> Iterator[BundleDistribution]:
    """The distributions of `context.name`, in whatever spelling, or all.

    None where places were named to look at: if the archive is one, the standard library finds them in the zip.
    """
    if "path" in vars(context):
        return
    wanted = None if context.name is None else _normal(context.name)
    for folder in sorted(archive.members.folders[""]):
        name, dash, rest = folder.partition("-")
        if dash and rest.endswith(".dist-info") and wanted in (None, _normal(name)):
            yield BundleDistribution(archive, folder)


def _normal(name: str) -> str:
    """PEP 503's spelling, in which alike names are equal."""
    return re.sub(r"[-_.]+", "-", name).lower()
