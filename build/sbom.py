"""The software bill of materials: CycloneDX 1.6 as JSON, the same bytes for the same tree, lock and facts.

The library for it (cyclonedx-python-lib) judges the result in the tests. Here it would cost each build half a second,
and a release of it would change the bytes of the file.
"""

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from urllib.parse import quote

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.metadata import RawMetadata, parse_email

from build.errors import BuildError
from build.lock import Lock, Package
from build.resolve import BUNDLED, Requirement, Resolution
from build.tree import Tree

SPECIFICATION = "1.6"
_LICENCE = re.compile(r"(licen[cs]e|copying|notice|unlicense)", re.IGNORECASE)

Json = dict[str, object]


def bill_of_materials(tree: Tree, lock: Lock, resolution: Resolution, facts: Mapping[str, object]) -> bytes:
    """The bill: the project, what travels in the file and what a run needs of the environment, and what needs what.

    BuildError for a bundled package without the text of its licence.
    """
    root = _component(resolution.root, tree, "application")
    known = {f"trainer:{name}": _text(value) for name, value in sorted(facts.items())}
    root["properties"] = _properties(known | _licence_texts(tree, resolution.root))
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
        "components": [_required(each, tree) for each in resolution.requirements],
        "dependencies": _dependencies(lock, resolution),
    }
    text = json.dumps(bill, sort_keys=True)
    bill["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_OID, text).urn
    return json.dumps(bill, indent=1, sort_keys=True).encode() + b"\n"


def licence_files(tree: Tree, package: str) -> tuple[str, ...]:
    """Where the texts of a bundled package's licences lie in the file."""
    inside = [
        file.path for file in tree if file.package == package and file.path.partition("/")[0].endswith(".dist-info")
    ]
    named = set(_metadata(tree, package).get("license_files", []))
    return tuple(
        path
        for path in inside
        if path.partition("/")[2].removeprefix("licenses/") in named
        or "/licenses/" in path
        or _LICENCE.match(path.rpartition("/")[2])
    )


def _required(requirement: Requirement, tree: Tree) -> Json:
    package = requirement.package
    bundled = requirement.kind == BUNDLED
    found = _component(package, tree if bundled else None, "library")
    properties = {"trainer:place": "in the file" if bundled else "environment"}
    if requirement.marker is not None:
        properties["trainer:marker"] = requirement.marker
    if bundled:
        properties |= _licence_texts(tree, package)
        passes = sorted({name for file in tree if file.package == package.name for name in file.passes})
        if passes:
            found["pedigree"] = {"notes": f"minified: {', '.join(passes)}"}
        if len(package.wheels) == 1 and (package.wheels[0].hash or "").startswith("sha256:"):
            found["hashes"] = [{"alg": "SHA-256", "content": (package.wheels[0].hash or "").partition(":")[2]}]
    found["scope"] = "required"
    found["properties"] = _properties(properties)
    return found


def _licence_texts(tree: Tree, package: Package) -> dict[str, str]:
    files = licence_files(tree, package.name)
    if not files:
        raise BuildError(
            f"{package.label} would travel in the file without the text of its licence",
            "depend on a release of it that brings the text along",
        )
    return {f"trainer:licence-file:{number}": path for number, path in enumerate(files, 1)}


def _component(package: Package, tree: Tree | None, kind: str) -> Json:
    found: Json = {"type": kind, "name": package.name, "bom-ref": _reference(package)}
    if package.version is not None:
        found |= {"version": package.version, "purl": _reference(package)}
    licences = [] if tree is None else list(_licences(_metadata(tree, package.name)))
    if licences:
        found["licenses"] = licences
    return found


def _metadata(tree: Tree, package: str) -> RawMetadata:
    for file in tree:
        if file.package == package and re.fullmatch(r"[^/]+\.dist-info/METADATA", file.path):
            return parse_email(file.data)[0]
    raise BuildError(f"{package} has no METADATA", "delete .cache/build and build again")


def _licences(metadata: RawMetadata) -> Iterator[Json]:
    """One expression, or else what the package says of its licence in its own words."""
    said = metadata.get("license_expression") or metadata.get("license", "")
    try:
        yield {"expression": canonicalize_license_expression(said)}
        return
    except InvalidLicenseExpression:
        pass
    named = [line.rpartition(" :: ")[2] for line in metadata.get("classifiers", []) if line.startswith("License ::")]
    for name in named or [said.strip().partition("\n")[0]]:
        if name:
            yield {"license": {"name": name}}


def _dependencies(lock: Lock, resolution: Resolution) -> list[Json]:
    packages = [resolution.root, *(each.package for each in resolution.requirements)]
    known = {_reference(package) for package in packages}
    found = []
    for package in packages:
        edges = [*package.dependencies]
        if package is not resolution.root:  # an extra that somebody asks for is known by what it needs being here
            edges += [edge for extra in package.extras.values() for edge in extra]
        needed = {_reference(lock.find(edge)) for edge in edges}
        found.append((_reference(package), sorted((needed & known) - {_reference(package)})))
    return [{"ref": reference, "dependsOn": needed} for reference, needed in sorted(found)]


def _reference(package: Package) -> str:
    version = f"@{quote(package.version, safe='')}" if package.version else ""
    return f"pkg:pypi/{package.name}{version}"


def _properties(values: Mapping[str, str]) -> list[Json]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
