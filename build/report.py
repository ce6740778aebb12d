"""Where the bytes of the file are, by package and by part."""

import io
import zipfile
import zlib
from collections.abc import Sequence

import trainer_boot.layout as layout
from build.compile import CodeSection
from build.reach import Reach
from build.tree import File, Tree

Row = dict[str, int | dict[str, int]]


def report(tree: Tree, sections: Sequence[CodeSection], reached: Reach, data: bytes) -> dict[str, object]:
    """JSON values: bytes of each package and of each part of the file `data`, and what was left out of the file."""
    packages = sorted({file.package for file in tree})
    rows = {package: _row([file for file in tree if file.package == package], sections) for package in packages}
    return {
        "bytes": len(data),
        "parts": _parts(data),
        "packages": rows,
        "left_out": {
            package: {
                "modules": names,
                "bytes": sum(len(file.data) for file in reached.left_out if file.package == package),
            }
            for package, names in reached.names().items()
        },
        "whole": reached.whole,
    }


def table(found: dict[str, object]) -> str:
    """The same for a terminal."""
    rows: dict[str, Row] = found["packages"]  # type: ignore[assignment]  # as made above
    parts: dict[str, int] = found["parts"]  # type: ignore[assignment]
    versions = sorted({version for row in rows.values() for version in _code(row)})
    columns = ("modules", "text", "minified", "text deflated", "minified deflated", "data deflated")
    cells = [["package", *columns, *(f"code {version}" for version in versions)]]
    total: dict[str, int] = {}
    for package, row in rows.items():
        numbers = {name: value for name in columns if isinstance(value := row[name], int)}
        numbers |= {f"code {version}": _code(row).get(version, 0) for version in versions}
        total = {name: total.get(name, 0) + value for name, value in numbers.items()}
        cells.append([package, *(f"{value:,}" for value in numbers.values())])
    cells.append(["total", *(f"{value:,}" for value in total.values())])
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = [
        "  ".join(cell.rjust(width) if column else cell.ljust(width) for column, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(row, widths, strict=True)) for row in cells)
    ]
    size = sum(parts.values())
    lines += [f"{name:<28} {value:>11,}  {100 * value / size:4.1f} %" for name, value in parts.items()]
    return "\n".join(lines)


def _code(row: Row) -> dict[str, int]:
    code = row["code"]
    assert isinstance(code, dict)
    return code


def _row(files: list[File], sections: Sequence[CodeSection]) -> Row:
    """One package. Deflated sizes are those of single files, as they lie in a zip."""
    modules = [file for file in files if file.module is not None]
    names = {file.module for file in modules}
    return {
        "modules": len(modules),
        "text": sum(len(file.original or b"") for file in modules),
        "minified": sum(len(file.data) for file in modules),
        "text deflated": sum(_packed(file.original or b"") for file in modules),
        "minified deflated": sum(_packed(file.data) for file in modules),
        "data deflated": sum(_packed(file.data) for file in files if file.module is None),
        "code": {
            section.interpreter.version: sum(len(code) for name, code in section.codes if name in names)
            for section in sections
        },
    }


def _parts(data: bytes) -> dict[str, int]:
    """What the bytes of the file are for; their sum is its size."""
    parts: dict[str, int] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.infolist():
            name = member.filename
            if not name.startswith((layout.FOLDER, "__main__")):
                name = "minified modules" if name.endswith(".py") else "data and metadata"
            parts[name] = parts.get(name, 0) + member.compress_size
    named = dict(sorted(parts.items(), key=lambda part: -part[1]))
    return {**named, "header and zip directory": len(data) - sum(parts.values())}


def _packed(data: bytes) -> int:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return min(len(packer.compress(data) + packer.flush()), len(data))
