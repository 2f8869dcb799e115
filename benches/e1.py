#!/usr/bin/env python3
"""Sums up what e1.sh has measured: results.csv, results.txt, plot.svg and check.txt.

    e1.py OUT WORK    WORK holds connector-<round>.<size>/results.csv, and the same for adapter

The bars, by medians over the rounds:
  - from block size 16 up the adapter (its process and the server) takes at most 1.10 times the CPU of the
    connector (one process); the median is that of the ratios, since in each round the two run one after the
    other, and some minutes later the machine may be slower for both;
  - auto reaches at least 0.95 of the throughput of the best fixed size;
  - the p99 latency of auto is below that of any fixed size that reaches 0.9 of its throughput.
The exit code is 0 if all hold, 1 otherwise."""

import csv
import glob
import os
import statistics
import sys

WAYS = ("connector", "adapter")
FIGURES = ("elapsed_s", "cpu_s", "rows_per_s", "p50_ms", "p99_ms", "peak_mb")
CPU_RATIO_MAX = 1.10
BLOCK_SIZE_FROM = 16
THROUGHPUT_MIN = 0.95
THROUGHPUT_NEAR = 0.90


def read(work):
    """{(way, block size): {round: a run, as a dict of figures}}, block sizes in their order, and all lines."""
    runs, sizes, lines = {}, [], []
    for way in WAYS:
        for path in sorted(glob.glob(os.path.join(work, f"{way}-*", "results.csv"))):
            round_ = path.split(f"{way}-")[-1].split(".")[0]
            with open(path, newline="") as file:
                for row in csv.DictReader(file):
                    size = row["block.size"]
                    if size not in sizes:
                        sizes.append(size)
                    runs.setdefault((way, size), {})[round_] = {key: float(row[key]) for key in FIGURES}
                    lines.append([way, size, round_] + [row[key] for key in FIGURES])
    if not lines:
        sys.exit(f"e1.py: there are no results in '{work}'")
    # Rounds begin with different ones.
    sizes.sort(key=lambda size: (size == "auto", 0 if size == "auto" else int(size)))
    return runs, sizes, lines


def medians(runs):
    return {key: {f: statistics.median(run[f] for run in rounds.values()) for f in FIGURES} for key, rounds in runs.items()}


def cpu_ratios(runs, size):
    """The adapter's CPU over the connector's, of each round."""
    adapter, connector = runs["adapter", size], runs["connector", size]
    return sorted(adapter[round_]["cpu_s"] / connector[round_]["cpu_s"] for round_ in connector)


def table(median, runs, sizes):
    head = f"{'way':<10}{'block.size':>11}{'elapsed s':>11}{'range':>17}{'CPU s':>8}{'M rows/s':>10}{'p50 ms':>10}{'p99 ms':>10}{'peak MB':>9}"
    lines = [head]
    for way in WAYS:
        for size in sizes:
            m = median[way, size]
            elapsed = [run["elapsed_s"] for run in runs[way, size].values()]
            span = f"{min(elapsed):.2f}-{max(elapsed):.2f}"
            lines.append(
                f"{way:<10}{size:>11}{m['elapsed_s']:>11.3f}{span:>17}{m['cpu_s']:>8.2f}{m['rows_per_s'] / 1e6:>10.3f}"
                f"{m['p50_ms']:>10.2f}{m['p99_ms']:>10.2f}{m['peak_mb']:>9.0f}"
            )
    count = min(len(rounds) for rounds in runs.values())
    return f"medians of {count} rounds; the adapter's CPU is that of both processes, its latency that of the job\n" + "\n".join(lines) + "\n"


def check(median, runs, sizes):
    """Lines of a verdict, and whether all bars hold."""
    lines, good = [], True

    def bar(holds, text):
        nonlocal good
        good &= holds
        lines.append(f"{'holds ' if holds else 'FAILS '} {text}")

    fixed = [size for size in sizes if size != "auto"]
    for size in [s for s in fixed if int(s) >= BLOCK_SIZE_FROM] + (["auto"] if "auto" in sizes else []):
        adapter, connector, ratios = median["adapter", size]["cpu_s"], median["connector", size]["cpu_s"], cpu_ratios(runs, size)
        ratio = statistics.median(ratios)
        text = f"CPU, block size {size}: adapter {adapter:.2f} s, connector {connector:.2f} s, ratio {ratio:.3f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"
        bar(ratio <= CPU_RATIO_MAX, text)
    if "auto" not in sizes or not fixed:
        return lines, good
    for way in WAYS:
        auto = median[way, "auto"]
        best = max(fixed, key=lambda size: median[way, size]["rows_per_s"])
        ratio = auto["rows_per_s"] / median[way, best]["rows_per_s"]
        bar(ratio >= THROUGHPUT_MIN, f"throughput, {way}: auto has {ratio:.3f} of that of block size {best}, the best")
        near = [s for s in fixed if median[way, s]["rows_per_s"] >= THROUGHPUT_NEAR * auto["rows_per_s"]]
        for size in near:
            other = median[way, size]["p99_ms"]
            bar(auto["p99_ms"] < other, f"p99, {way}: auto {auto['p99_ms']:.2f} ms, block size {size} {other:.2f} ms")
        if not near:
            lines.append(f"      p99, {way}: no fixed size reaches {THROUGHPUT_NEAR} of auto's throughput")
    return lines, good


def plot(median, sizes):
    """Four small charts over the block size, as SVG."""
    panels = [("elapsed_s", "elapsed, s", 1.0), ("cpu_s", "CPU, s", 1.0), ("rows_per_s", "million rows/s", 1e-6), ("p99_ms", "p99 latency, ms", 1.0)]
    colors = {"connector": "#1f6fb4", "adapter": "#d2691e"}
    width, height, left, bottom, top = 480, 300, 56, 40, 34
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * width}" height="{2 * height}" font-family="sans-serif" font-size="11">']
    out.append(f'<rect width="{2 * width}" height="{2 * height}" fill="white"/>')
    for number, (key, caption, scale) in enumerate(panels):
        x0, y0 = (number % 2) * width, (number // 2) * height
        highest = max(median[way, size][key] * scale for way in WAYS for size in sizes) * 1.1 or 1.0
        inner_w, inner_h = width - left - 16, height - top - bottom
        x = lambda i: x0 + left + inner_w * (i + 0.5) / len(sizes)
        y = lambda value: y0 + top + inner_h * (1 - value / highest)
        out.append(f'<text x="{x0 + left}" y="{y0 + 20}" font-size="14">VWAP: {caption}</text>')
        for step in range(5):
            value = highest * step / 4
            out.append(f'<line x1="{x0 + left}" x2="{x0 + width - 16}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>')
            out.append(f'<text x="{x0 + left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.3g}</text>')
        for i, size in enumerate(sizes):
            out.append(f'<text x="{x(i):.1f}" y="{y0 + height - bottom + 16}" text-anchor="middle">{size}</text>')
        out.append(f'<text x="{x0 + left + inner_w / 2:.1f}" y="{y0 + height - 8}" text-anchor="middle">block.size</text>')
        for place, way in enumerate(WAYS):
            points = [(x(i), y(median[way, size][key] * scale)) for i, size in enumerate(sizes)]
            path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
            out.append(f'<polyline points="{path}" fill="none" stroke="{colors[way]}" stroke-width="2"/>')
            out.extend(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colors[way]}"/>' for px, py in points)
            out.append(f'<text x="{x0 + width - 90}" y="{y0 + 14 + 13 * place}" fill="{colors[way]}">{way}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    out, work = sys.argv[1:]
    runs, sizes, lines = read(work)
    rounds = {line[2] for line in lines}
    missing = [f"{way} at block size {size}, round {r}" for way in WAYS for size in sizes for r in sorted(rounds) if r not in runs.get((way, size), {})]
    if missing:
        sys.exit(f"e1.py: not measured: {', '.join(missing)}")
    median = medians(runs)
    verdict, good = check(median, runs, sizes)
    with open(os.path.join(out, "results.csv"), "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["way", "block.size", "round", *FIGURES])
        writer.writerows(lines)
    text = table(median, runs, sizes)
    for name, content in (("results.txt", text), ("plot.svg", plot(median, sizes)), ("check.txt", "\n".join(verdict) + "\n")):
        with open(os.path.join(out, name), "w") as file:
            file.write(content)
    print(text + "\n" + "\n".join(verdict))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
