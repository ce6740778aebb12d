"""Modules of bundled distributions that the build left out, since the trainer can't reach them: from the environment.

User code may want one (`tqdm.keras`). It is served from the environment where the same version of that distribution is
installed, so that no two versions meet in one package; else it is not found, and a warning says why. Asked only for a
name in a bundled package that the archive does not have.
"""

import json
import os
import sys
import warnings
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import DistributionFinder, MetadataPathFinder

from trainer_boot.layout import BUILD_INFORMATION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer_boot.finder import BundleFinder


def find(finder: "BundleFinder", name: str) -> ModuleSpec | None:
    """The spec of a module that was left out, from where its distribution is installed; None for any other name."""
    recorded = json.loads(finder.archive.members.read(BUILD_INFORMATION)).get("left_out", {})
    package = next((package for package, names in recorded.items() if name in names), None)
    if package is None:
        return None
    wanted = next(each.version for each in finder.find_distributions(DistributionFinder.Context(name=package)))
    others = set()
    for place in sys.path:
        for found in MetadataPathFinder.find_distributions(DistributionFinder.Context(name=package, path=[place])):
            if found.version == wanted:
                return PathFinder.find_spec(name, [os.path.join(place, *name.split(".")[:-1])])
            others.add(found.version)
    instead = f", not {', '.join(sorted(others))}," if others else ""
    warnings.warn(
        f"{name} was left out of {finder.archive.path}; install {package}=={wanted}{instead} in the environment, or "
        f"build with keep = [{name!r}] in [tool.trainer-build]",
        stacklevel=2,
    )
    return None
