"""The software bill of materials: CycloneDX 1.6 as JSON, the same bytes for the same tree, lock and facts.

The library for it (cyclonedx-python-lib) judges the result in the tests. Here it would cost each build half a second,
and a release of it would change the bytes of the file.
"""

import json
import uuid
from collections.abc import Mapping

from build.errors import BuildError
from build.licences import Json, licence_files, licences, metadata_of, purl
from build.lock import Lock, Package
from build.resolve import BUNDLED, Requirement, Resolution, portable_wheel
from build.settings import TABLE
from build.tree import Tree
from build.vendored import Vendored, vendored

SPECIFICATION = "1.6"


def bill_of_materials(
    tree: Tree,
    lock: Lock,
    resolution: Resolution,
    facts: Mapping[str, object],
    without_licence: frozenset[str] = frozenset(),
) -> bytes:
    """Return the bill: the project, what travels in the file and what a run needs of the environment, and what needs
    what.

    BuildError for a bundled package without the text of its licence that is not in `without_licence`.
    """
    maker = _Maker(tree, lock, resolution.root, without_licence)
    root = maker.component(resolution.root, "application")
    root["version"] = version_of(tree, resolution.root.name)
    known = {f"trainer:{name}": _text(value) for name, value in sorted(facts.items())}
    root["properties"] = _properties(known | maker.licence_texts(resolution.root))
    bill: Json = {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPECIFICATION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "version": 1,
        "metadata": {
            # no time stamp: it would be the only thing that another builder has otherwise
            "tools": {"components": [{"type": "application", "name": "trainer-build", "version": facts["version"]}]},
            "component": root,
        },
        "components": [maker.required(each) for each in resolution.requirements],
        "dependencies": _dependencies(lock, resolution),
    }
    text = json.dumps(bill, sort_keys=True)
    bill["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_OID, text).urn
    return json.dumps(bill, indent=1, sort_keys=True).encode() + b"\n"


def version_of(tree: Tree, package: str) -> str:
    """Return the version of a distribution in the tree, by its metadata."""
    return metadata_of(tree, package).get("version", "")


class _Maker:
    """Makes the components of one bill."""

    def __init__(self, tree: Tree, lock: Lock, root: Package, without_licence: frozenset[str]) -> None:
        self.tree = tree
        self.lock = lock
        self.root = root
        self.without_licence = without_licence

    def required(self, requirement: Requirement) -> Json:
        """Return the component of what a run needs."""
        package = requirement.package
        bundled = requirement.kind == BUNDLED
        found = self.component(package, "library", described=bundled)
        properties = {"trainer:place": "in the file" if bundled else "environment"}
        if requirement.marker is not None:
            properties["trainer:marker"] = requirement.marker
        if bundled:
            properties |= self.licence_texts(package)
            passes = sorted({name for file in self.tree if file.package == package.name for name in file.passes})
            if passes:
                found["pedigree"] = {"notes": f"minified: {', '.join(passes)}"}
            wheel = portable_wheel(package)
            if wheel is not None and (wheel.hash or "").startswith("sha256:"):
                found["hashes"] = [{"alg": "SHA-256", "content": (wheel.hash or "").partition(":")[2]}]
            inside = [self._copy(each, str(found["bom-ref"])) for each in vendored(self.tree, package.name)]
            if inside:
                found["components"] = inside
        found["scope"] = "required"
        found["properties"] = _properties(properties)
        return found

    def component(self, package: Package, kind: str, described: bool = True) -> Json:
        """Return what every component has; `described`: its metadata are in the tree."""
        reference = _reference(self.lock, package)
        found: Json = {"type": kind, "name": package.name, "bom-ref": reference}
        if package.version is not None:
            found |= {"version": package.version, "purl": reference}
        said = list(licences(metadata_of(self.tree, package.name))) if described else []
        if said:
            found["licenses"] = said
        return found

    def licence_texts(self, package: Package) -> dict[str, str]:
        """Return the properties that tell where the texts are."""
        files = licence_files(self.tree, package.name)
        if not files and package.name in self.without_licence:
            return {"trainer:licence-text": "none"}
        if not files:
            raise BuildError(
                f"{package.label} would travel in the file without the text of its licence",
                f'Depend on a release of it that has the text. If you may ship it without, add "{package.name}" to '
                f"`allow-no-license` in [tool.{TABLE}] of pyproject.toml.",
            )
        return {f"trainer:licence-file:{number}": path for number, path in enumerate(files, 1)}

    def _copy(self, found: Vendored, parent: str) -> Json:
        """Return the component of what a package has copied into itself."""
        made: Json = {"type": "library", "name": found.name, "bom-ref": f"{parent}#{found.place}/{found.name}"}
        if found.version is not None:
            made |= {"version": found.version, "purl": purl(found.name, found.version)}
        said = list(licences(found.metadata))
        if said:
            made["licenses"] = said
        texts = {f"trainer:licence-file:{number}": path for number, path in enumerate(found.texts, 1)}
        made["properties"] = _properties({"trainer:place": found.place, **texts})
        return made


def _dependencies(lock: Lock, resolution: Resolution) -> list[Json]:
    packages = [resolution.root, *(each.package for each in resolution.requirements)]
    known = {_reference(lock, package) for package in packages}
    found = []
    for package in packages:
        edges = [*package.dependencies]
        if package is not resolution.root:  # an extra that somebody asks for is known by what it needs being here
            edges += [edge for extra in package.extras.values() for edge in extra]
        needed = {_reference(lock, lock.find(edge)) for edge in edges}
        own = _reference(lock, package)
        found.append((own, sorted((needed & known) - {own})))
    return [{"ref": reference, "dependsOn": needed} for reference, needed in sorted(found)]


def _reference(lock: Lock, package: Package) -> str:
    """Return the package URL; it tells where from, unless that is the registry that the type `pypi` stands for."""
    source = package.source
    if source.kind == "registry" and (source.location != lock.default_index or lock.declared_index is not None):
        return purl(package.name, package.version, repository_url=source.location)
    if source.kind == "url":
        return purl(package.name, package.version, download_url=source.location)
    if source.kind == "git":
        return purl(package.name, package.version, vcs_url=f"git+{source.location}")
    if source.kind == "path":
        return purl(package.name, package.version, file_name=source.location.rpartition("/")[2])
    return purl(package.name, package.version)


def _properties(values: Mapping[str, str]) -> list[Json]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
