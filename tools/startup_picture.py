"""The start-up comparison as one self-contained SVG: bars in groups, shorter is better."""

from typing import Any

from tools import startup_answers, startup_steps

OURS, OTHERS = "#2563eb", "#94a3b8"
LEFT, WIDTH = 180, 380

Group = tuple[str, list[tuple[str, float, bool]]]
"""Title, then (contender, ratio, whether it is the file as it comes)."""


def picture(result: dict[str, Any]) -> str:
    """First updates first, then answers; what was not measured is left out."""
    steps: list[Group] = [
        (title, [(name, each["ratio"], name == "trainer") for name, each in result["first_update"][title].items()])
        for title, _ in startup_steps.FLOWS.values()
        if title in result.get("first_update", {})
    ]
    answers: list[Group] = [
        (title, [(name, each["ratio"], name == "trainer.pyz") for name, each in result["answers"][title].items()])
        for title, _, _ in startup_answers.FLOWS.values()
        if title in result.get("answers", {})
    ]
    parts: list[str] = []
    top = 24
    if steps:
        top = _section(parts, top, "Time to the first update, as a multiple of a hand-written script", steps)
    if answers:
        title = 'Time to answer, as a multiple of <tspan font-family="monospace">python -c pass</tspan>'
        top = _section(parts, top, title, answers)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="620" height="{top}" font-family="sans-serif" '
        f'font-size="12">\n<rect width="100%" height="100%" fill="white"/>'
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def _section(parts: list[str], top: int, title: str, groups: list[Group]) -> int:
    """Adds a title and the groups' bars on one scale, with a line at 1; the next free height."""
    scale = WIDTH / max(ratio for _, rows in groups for _, ratio, _ in rows)
    parts.append(f'<text x="16" y="{top}" font-size="14">{title} (shorter is better)</text>')
    first = top + 18
    line = LEFT + scale
    parts.append(f'<text x="{line + 4:.1f}" y="{first + 6}" fill="#dc2626">1.0</text>')
    top += 22
    for name, rows in groups:
        top += 12
        parts.append(f'<text x="16" y="{top + 4}" font-weight="bold">{name}</text>')
        top += 14
        for contender, ratio, ours in rows:
            end = LEFT + ratio * scale
            color = OURS if ours else OTHERS
            parts.append(f'<text x="16" y="{top + 11}">{contender}</text>')
            parts.append(
                f'<rect x="{LEFT}" y="{top}" width="{ratio * scale:.1f}" height="14" rx="2" fill="{color}"/>'
                f'<text x="{end + 6:.1f}" y="{top + 11}">{ratio:.2f}</text>'
            )
            top += 20
    parts.append(
        f'<line x1="{line:.1f}" y1="{first}" x2="{line:.1f}" y2="{top}" stroke="#dc2626" stroke-dasharray="4 3"/>'
    )
    return top + 30
