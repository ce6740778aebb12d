"""Loss curves as one self-contained SVG: above the curves, below how far each is from the first, on a log scale."""

import math
from html import escape

COLORS = ["#111827", "#94a3b8", "#2563eb", "#dc2626", "#16a34a", "#9333ea", "#ea580c", "#0891b2", "#ca8a04", "#db2777"]
LEFT, WIDTH, HEIGHT, LEGEND = 60, 520, 240, 200
TOPS = (36, 330)
LEAST = 1e-8  # differences below are drawn here


def picture(curves: dict[str, list[float]], first: str, seed: str) -> str:
    """`first`: what all are compared with; `seed`: the same with another seed, which is drawn as the measure."""
    steps = len(curves[first])

    def across(step: float) -> float:
        return LEFT + WIDTH * step / max(1, steps - 1)

    values = [value for each in curves.values() for value in each]
    low, high = math.floor(min(values)), math.ceil(max(values))

    def down(loss: float) -> float:
        return TOPS[0] + HEIGHT * (high - loss) / (high - low)

    apart = {
        name: [abs(one - other) for one, other in zip(each, curves[first], strict=True)]
        for name, each in curves.items()
        if name != first
    }
    most = max(math.ceil(math.log10(max(max(each), LEAST))) for each in apart.values())
    least = round(math.log10(LEAST))

    def below(gap: float) -> float:
        return TOPS[1] + HEIGHT * (most - math.log10(max(gap, LEAST))) / (most - least)

    parts = [f'<text x="16" y="20" font-size="14">Loss of {steps} updates, however the run is cut</text>']
    parts += _frame(TOPS[0], [(down(loss), str(loss)) for loss in range(low, high + 1)])
    parts.append(
        f'<text x="16" y="{TOPS[1] - 16}" font-size="14">Difference from {escape(first)} (grey: another seed)</text>'
    )
    parts += _frame(TOPS[1], [(below(10.0**power), f"1e{power}") for power in range(least, most + 1)])
    # the widest at the back, since most lie on one another
    for number, (name, each) in enumerate(curves.items()):
        color = COLORS[number % len(COLORS)]
        width = 1.0 if name == seed else max(1.0, 5.5 - 0.7 * number)
        parts.append(_line([(across(step), down(loss)) for step, loss in enumerate(each)], color, width))
        if name in apart:
            parts.append(_line([(across(step), below(gap)) for step, gap in enumerate(apart[name])], color, 1.0))
        height = TOPS[0] + 10 + 20 * number
        parts.append(
            f'<rect x="{LEFT + WIDTH + 16}" y="{height - 9}" width="14" height="10" fill="{color}"/>'
            f'<text x="{LEFT + WIDTH + 36}" y="{height}">{escape(name)}</text>'
        )
    size = f'width="{LEFT + WIDTH + LEGEND}" height="{TOPS[1] + HEIGHT + 30}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">\n'
        '<rect width="100%" height="100%" fill="white"/>'
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def _frame(top: int, marks: list[tuple[float, str]]) -> list[str]:
    lines = [
        f'<line x1="{LEFT}" y1="{at:.1f}" x2="{LEFT + WIDTH}" y2="{at:.1f}" stroke="#e5e7eb"/>'
        f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{escape(text)}</text>'
        for at, text in marks
    ]
    return [*lines, f'<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#9ca3af"/>']


def _line(points: list[tuple[float, float]], color: str, width: float) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{width:.1f}"/>'
