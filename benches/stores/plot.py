"""Plots of a run as SVG: panels below each other, a line in each."""

from collections import namedtuple

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 250, 80, 20, 34, 52
PARTS = 4

# points: (x, y) in order; below: what stands below a place of the x axis, a line each
Panel = namedtuple("Panel", "title points below")


def rates(samples, rows_min):
    """(s, rows so far, rows a second) of each part of a run with at least `rows_min` rows, which the live line rounds."""
    points, last = [], samples[0] if samples else None
    for sample in samples:
        if sample[1] - last[1] >= rows_min and sample[0] > last[0]:
            points.append((sample[0], sample[1], (sample[1] - last[1]) / (sample[0] - last[0])))
            last = sample
    return points


def latencies(samples):
    """(s, rows so far, p99 ms) wherever the live line has another latency than before: once a second."""
    points, last = [], None
    for at, rows, _, p99 in samples:
        if p99 is not None and p99 != last:
            points.append((at, rows, p99))
            last = p99
    return points


def number(value):
    """12,345 or 1.2."""
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.2g}"


def panel(at, number_of, what):
    """The lines of a panel whose upper edge is at `at`."""
    x_most = max(x for x, _ in what.points) or 1
    y_most = (max(y for _, y in what.points) or 1) * 1.1
    x = lambda v: LEFT + (WIDTH - LEFT - RIGHT) * v / x_most
    y = lambda v: at + HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * v / y_most
    lines = [f'<text x="{LEFT}" y="{at + 18}" font-weight="bold">{what.title}</text>']
    for part in range(PARTS + 1):
        value, place = y_most * part / PARTS, x_most * part / PARTS
        lines.append(f'<line x1="{LEFT}" y1="{y(value):.1f}" x2="{WIDTH - RIGHT}" y2="{y(value):.1f}" stroke="#ddd"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{number(value)}</text>')
        for row, text in enumerate(what.below(place)):
            lines.append(f'<text x="{x(place):.1f}" y="{at + HEIGHT - BOTTOM + 18 + 15 * row}" text-anchor="middle">{text}</text>')
    points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in what.points)
    color = ("#1664a5", "#a54016", "#2f7d32")[number_of % 3]
    return [*lines, f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>']


def draw(title, panels):
    """The panels that have points, as SVG; None if there are none."""
    panels = [p for p in panels if len(p.points) > 1]
    if not panels:
        return None
    height = 30 + HEIGHT * len(panels)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="15">{title}</text>',
    ]
    for i, what in enumerate(panels):
        lines += panel(30 + i * HEIGHT, i, what)
    return "\n".join([*lines, "</svg>\n"])


def seconds(place):
    """Below an axis of time."""
    return [f"{number(place)} s"]


def of_insert(name, full, half, rows, size):
    """Plots of our insert job: `full` and `half` are samples at full rate and at half of it, `size` bytes the table's end."""
    table = lambda place: [f"{place / 1e6:,.3g} M rows", f"{size * place / max(rows, 1) / 1e6:,.0f} MB"]
    return draw(f"{name}: inserts", [
        Panel("events a second over the size of the table", [(n, rate) for _, n, rate in rates(full, rows / 40)], table),
        Panel("p99 to the commit, ms, at full rate (rows wait in queues), over the size of the table", [p[1:] for p in latencies(full)], table),
        Panel("p99 to the commit, ms, at half of that rate, over time", [(p[0], p[2]) for p in latencies(half)], seconds),
    ])


def of_update(name, full, half, rows):
    """Plots of our update job, of `rows` updates."""
    return draw(f"{name}: updates by key", [
        Panel("events a second over time", [(at, rate) for at, _, rate in rates(full, rows / 40)], seconds),
        Panel("p99 to the commit, ms, at full rate (rows wait in queues), over time", [(p[0], p[2]) for p in latencies(full)], seconds),
        Panel("p99 to the commit, ms, at half of that rate, over time", [(p[0], p[2]) for p in latencies(half)], seconds),
    ])
