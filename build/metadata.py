"""The `.dist-info` of the project itself, from its pyproject.toml: what an installer would write."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from build.errors import BuildError


def metadata_files(
    pyproject: Path, locked_version: str | None, packages: tuple[str, ...]
) -> Iterator[tuple[str, bytes, str]]:
    """(path, bytes, distribution) of METADATA, WHEEL, entry_points.txt, top_level.txt and the licenses.

    `packages` are the import packages. BuildError where the lock was made for another version of the project.
    """
    with open(pyproject, "rb") as file:
        project: dict[str, Any] = tomllib.load(file)["project"]
    name, version = project["name"], project["version"]
    if locked_version not in (None, version):
        raise BuildError(
            f"pyproject.toml says {name} {version}, uv.lock was made for {locked_version}",
            "run `uv lock`, then build again",
        )
    distribution = canonicalize_name(name)
    folder = f"{distribution.replace('-', '_')}-{version}.dist-info"
    licenses = [path for pattern in project.get("license-files", []) for path in sorted(pyproject.parent.glob(pattern))]
    for path in licenses:
        inside = path.relative_to(pyproject.parent).as_posix()
        yield f"{folder}/licenses/{inside}", path.read_bytes(), distribution
    texts = {
        "METADATA": _headers(project, licenses, pyproject.parent),
        "WHEEL": "Wheel-Version: 1.0\nGenerator: trainer-build\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": _entry_points(project),
        "top_level.txt": "".join(f"{package}\n" for package in sorted(packages)),
    }
    for inside, text in texts.items():
        if text:
            yield f"{folder}/{inside}", text.encode(), distribution


def _headers(project: dict[str, Any], licenses: list[Path], folder: Path) -> str:
    rows = [("Metadata-Version", "2.4"), ("Name", project["name"]), ("Version", project["version"])]
    for key, header in (("description", "Summary"), ("license", "License-Expression")):
        if isinstance(project.get(key), str):
            rows.append((header, project[key]))
    rows += [("License-File", path.relative_to(folder).as_posix()) for path in licenses]
    if "requires-python" in project:
        rows.append(("Requires-Python", project["requires-python"]))
    rows += [("Requires-Dist", _requirement(text)) for text in project.get("dependencies", [])]
    for extra, texts in project.get("optional-dependencies", {}).items():
        rows.append(("Provides-Extra", extra))
        rows += [("Requires-Dist", _requirement(text, extra)) for text in texts]
    return "".join(f"{header}: {value}\n" for header, value in rows)


def _requirement(text: str, extra: str | None = None) -> str:
    try:
        requirement = str(Requirement(text))
    except InvalidRequirement as error:
        raise BuildError(f"pyproject.toml: {text!r} is not a requirement: {error}", "correct it there") from None
    if extra is None:
        return requirement
    plain, _, marker = requirement.partition(";")
    condition = f"({marker.strip()}) and extra == '{extra}'" if marker else f"extra == '{extra}'"
    return f"{plain.strip()} ; {condition}"


def _entry_points(project: dict[str, Any]) -> str:
    groups: dict[str, dict[str, str]] = {"console_scripts": project.get("scripts", {})}
    groups["gui_scripts"] = project.get("gui-scripts", {})
    groups |= project.get("entry-points", {})
    return "\n".join(
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
        for group, entries in groups.items()
        if entries
    )
