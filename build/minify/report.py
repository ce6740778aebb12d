"""What the minifier saved, and what it left alone."""

from dataclasses import dataclass

COLUMNS = ("package", "modules", "bytes", "minified", "", "deflated", "minified", "", "docstrings")


@dataclass(frozen=True, slots=True)
class Row:
    """One distribution. Sizes in bytes, (before, after); deflated ones as sums over single files."""

    package: str
    modules: int
    raw: tuple[int, int]
    packed: tuple[int, int]
    docstrings: str
    """"removed", or why they were kept."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A module that is shipped as it was written."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """Rows by package, refusals by path."""

    rows: tuple[Row, ...]
    refused: tuple[Refusal, ...]

    def table(self) -> str:
        """The rows, their sum and the refusals as text for a terminal."""
        modules = sum(row.modules for row in self.rows)
        total = Row("total", modules, _sum(self.rows, "raw"), _sum(self.rows, "packed"), "")
        cells = [COLUMNS, *(_cells(row) for row in (*self.rows, total))]
        widths = [max(len(row[column]) for row in cells) for column in range(len(COLUMNS))]
        lines = [
            "  ".join(
                cell.ljust(width) if column in (0, len(COLUMNS) - 1) else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        ]
        lines += [f"kept as it is: {refusal.path} ({refusal.reason})" for refusal in self.refused]
        return "\n".join(lines)


def _sum(rows: tuple[Row, ...], field: str) -> tuple[int, int]:
    sizes = [getattr(row, field) for row in rows]
    return sum(before for before, _ in sizes), sum(after for _, after in sizes)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.package,
        str(row.modules),
        *(f"{size:,}" for size in row.raw),
        _share(row.raw),
        *(f"{size:,}" for size in row.packed),
        _share(row.packed),
        row.docstrings,
    )


def _share(sizes: tuple[int, int]) -> str:
    return f"{100 * sizes[1] / sizes[0]:.0f}%" if sizes[0] else "-"
