"""What accuracy control found, as JSON and as a picture."""

from __future__ import annotations

from typing import Any

from tactix_quantize.accuracy import AccuracyTrade

WIDTH, HEIGHT, EDGE = 640, 360, 56
"""Pixels of the picture and of the room for its axes."""


def facts(outcome: AccuracyTrade) -> dict[str, Any]:
    """JSON: the float model's metric, losses of layers, what was tried, what was chosen."""
    return {
        "metric": outcome.metric,
        "drop": outcome.best.drop,
        "float_layers": list(outcome.best.wide),
        "losses": dict(outcome.losses),
        "trials": [{"float_layers": len(t.wide), "drop": t.drop} for t in outcome.trials],
    }


def svg(outcome: AccuracyTrade, allowed: float) -> str:
    """Drop of the metric over the number of layers in floats; a line marks what is allowed."""
    points = sorted((len(t.wide), t.drop) for t in outcome.trials)
    most, high = max(1, points[-1][0]), max(allowed, *(d for _, d in points), 1e-12) * 1.05

    def place(layers: float, drop: float) -> tuple[float, float]:
        x = EDGE + layers / most * (WIDTH - 2 * EDGE)
        return round(x, 1), round(HEIGHT - EDGE - max(drop, 0) / high * (HEIGHT - 2 * EDGE), 1)

    left, right = place(0, allowed), place(most, allowed)
    dots = [
        f'<circle cx="{x}" cy="{y}" r="5" fill="{_colour(n, drop, outcome)}">'
        f"<title>{n} layers in floats: drop {drop:.4g}</title></circle>"
        for n, drop in points
        for x, y in [place(n, drop)]
    ]
    corner, end, top = place(0, 0), place(most, 0), place(0, high)
    lines = [
        f'<line x1="{a[0]}" y1="{a[1]}" x2="{b[0]}" y2="{b[1]}" stroke="{colour}"/>'
        for a, b, colour in ((corner, end, "black"), (corner, top, "black"), (left, right, "red"))
    ]
    texts = [
        _text(WIDTH / 2, HEIGHT - 12, "layers in floats"),
        _text(corner[0], corner[1] + 18, "0"),
        _text(end[0], end[1] + 18, str(most)),
        _text(EDGE + 60, top[1] - 8, f"drop of the metric (top: {high:.3g})"),
        _text(right[0] - 40, right[1] - 6, f"allowed {allowed:g}"),
    ]
    body = "\n".join([*lines, *dots, *texts])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12">\n{body}\n</svg>\n'
    )


def _colour(layers: int, drop: float, outcome: AccuracyTrade) -> str:
    chosen = (layers, drop) == (len(outcome.best.wide), outcome.best.drop)
    return "green" if chosen else "steelblue"


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle">{text}</text>'
