"""The start-up comparison as one self-contained SVG: bars in groups, a group a flow, shorter is better."""

from html import escape
from itertools import pairwise
from typing import Any

from trainer.bench.figures import Row

OURS, OURS_IN_PART, OTHERS = "#2563eb", "#93c5fd", "#94a3b8"
BEST = ("trainer", "trainer.pyz", "trainer exec")
LEFT, WIDTH = 210, 400
ROW, HEAD, GAP = 20, 26, 12

Group = tuple[str, dict[str, Row]]
"""Title, then rows as figures.compared has them, in which `skipped` ones are not drawn."""

# key of the result -> title of the section
SECTIONS = {
    "first_update": "Time to the first update, as a multiple of a hand-written script",
    "first_update, cold": "The same with nothing in the page cache",
    "first_update, slow": "The same on a file system of 1 ms a request, mounted anew",
    "first_update, slow-warm": "The same, a second start on such a mount, seconds later",
    "restart": "From SIGKILL of a rank to every rank's next update, as a multiple of torchrun",
    "memory": "Memory (PSS) of all ranks after their first update, as a multiple of torchrun",
    "answers": "Time to answer, as a multiple of python -c pass",
}


def picture(result: dict[str, Any]) -> str:
    """A section for each part of the result; what was not measured is left out."""
    parts: list[str] = []
    top = 24
    for key, title in SECTIONS.items():
        groups = [group for group in _groups(result.get(key, {})) if group[1]]
        if groups:
            top = _section(parts, top, title, groups)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="700" height="{top}" font-family="sans-serif" '
        f'font-size="12">\n<rect width="100%" height="100%" fill="white"/>'
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def _groups(found: dict[str, Any]) -> list[Group]:
    groups = [(title, rows) for title, rows in found.items() if title != "rounds"]
    return [(title, {name: row for name, row in rows.items() if "ratio" in row}) for title, rows in groups]


def _section(parts: list[str], top: int, title: str, groups: list[Group]) -> int:
    """Adds a title and the groups' bars on one scale, with a line at 1; the next free height.

    Bars more than four times as long as the next would leave nothing of the others: they are cut, their figures tell.
    """
    ratios = sorted(row["ratio"] for _, rows in groups for row in rows.values())
    longest = ratios[-1]
    for shorter, longer in pairwise(ratios):
        if shorter >= 1 and longer > 4 * shorter:
            longest = 1.5 * shorter
            break
    scale = WIDTH / longest
    parts.append(f'<text x="16" y="{top}" font-size="14">{escape(title)} (shorter is better)</text>')
    first = top + 18
    line = LEFT + scale
    parts.append(f'<text x="{line + 4:.1f}" y="{first + 6}" fill="#dc2626">1.0</text>')
    top += 22
    for name, rows in groups:
        top += GAP
        parts.append(f'<text x="16" y="{top + 4}" font-weight="bold">{escape(name)}</text>')
        top += HEAD - GAP
        for contender, row in rows.items():
            parts += _bar(contender, row["ratio"], min(row["ratio"], longest) * scale, top)
            top += ROW
    parts.append(
        f'<line x1="{line:.1f}" y1="{first}" x2="{line:.1f}" y2="{top}" stroke="#dc2626" stroke-dasharray="4 3"/>'
    )
    return top + 30


def _bar(contender: str, ratio: float, width: float, top: int) -> list[str]:
    color = (
        OURS if contender in BEST else OURS_IN_PART if contender.startswith(("trainer, ", "trainer exec, ")) else OTHERS
    )
    return [
        f'<text x="16" y="{top + 11}">{escape(contender)}</text>',
        f'<rect x="{LEFT}" y="{top}" width="{width:.1f}" height="14" rx="2" fill="{color}"/>'
        f'<text x="{LEFT + width + 6:.1f}" y="{top + 11}">{ratio:.2f}</text>',
    ]
