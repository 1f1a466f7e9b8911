#!/usr/bin/env python3
"""Draws pictures that follow from formulas alone: shards.svg, of docs/howto/sharded.md, and ranks.svg, of
docs/howto/tensor-parallel.md.

    draw.py            writes them beside this file
    draw.py --check    exit code 1 if one is not as it would be written
"""
import pathlib, re, sys

HERE = pathlib.Path(__file__).resolve().parent
# Styles and colours are those of tools/draw, as a picture of it has them.
STYLE = re.search(r"<style>.*?</style>\n", (HERE / "buckets.svg").read_text(), re.S)[0]
BLUE, ORANGE, GREEN, PINK = "#2f7ed8", "#e07b00", "#1a9e77", "#c8559b"


class Picture:
    def __init__(self, width, height, title):
        self.text = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">\n'
                     f'<title>{title}</title>\n{STYLE}<rect class="paper" width="{width}" height="{height}"/>\n')
        self.label(16, 29, title, "start", "title")

    def label(self, x, y, words, anchor="middle", style="", fill=""):
        colour = f' style="fill: {fill}"' if fill else ""
        self.text += f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{colour}>{words}</text>\n'

    def box(self, x, y, width, height, colour, says="", opacity=0.85):
        self.text += f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2" fill="{colour}" fill-opacity="{opacity}"/>\n'
        if says:
            self.label(x + width / 2, y + height / 2 + 4, says, fill="#ffffff")

    def rule(self, x1, y1, x2, y2, style="axis"):
        self.text += f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>\n'

    def end(self):
        return self.text + "</svg>\n"


def kept(shard, n):
    """Bytes of a float32 parameter on each of n replicas: itself, its gradient, Adam's two moments."""
    return (4 / n if shard == "all" else 4, 4 / n if shard in ("gradients", "all") else 4, 8 if shard == "none" else 8 / n)


def shards():
    p = Picture(960, 300, "Bytes that a replica keeps of each parameter: float32, Adam")
    for i, (colour, what) in enumerate(((BLUE, "the parameter"), (ORANGE, "its gradient"), (GREEN, "the optimizer's state"))):
        p.box(16 + 150 * i, 44, 14, 14, colour)
        p.label(36 + 150 * i, 56, what, "start")
    low, high, scale = 250, 80, (250 - 80) / 16
    for tick in (0, 4, 8, 12, 16):
        p.rule(60, low - tick * scale, 944, low - tick * scale, "grid")
        p.label(52, low - tick * scale + 4, str(tick), "end", "quiet")
    for g, shard in enumerate(("none", "state", "gradients", "all")):
        left = 80 + 218 * g
        for b, n in enumerate((2, 4, 8)):
            x, y = left + 66 * b, low
            for colour, size in zip((BLUE, ORANGE, GREEN), kept(shard, n)):
                y -= size * scale
                p.box(x, y, 52, size * scale, colour)
            p.label(x + 26, y - 5, f"{sum(kept(shard, n)):g}")
            p.label(x + 26, low + 16, f"of {n}", style="quiet")
        p.label(left + 92, low + 38, f"Shard::{shard}")
    return p.end()


def ranks():
    p = Picture(960, 290, "A transformer block (norm_first) on two ranks: what each has, and where they meet")
    # A column of steps; cut ones are boxes on each rank, sums reach over both.
    steps = (("norm", "copy"), ("q, k, v", "cut"), ("its heads", "cut"), ("output", "cut"), ("sum", "sum"),
             ("norm", "copy"), ("up: columns", "cut"), ("gelu", "cut"), ("down: rows", "cut"), ("sum", "sum"))
    width, gap, left = 82, 7, 76
    for rank, y in ((0, 84), (1, 164)):
        p.label(16, y + 30, f"rank {rank}", "start")
        p.rule(66, y + 25, left + len(steps) * (width + gap), y + 25)
        for i, (words, kind) in enumerate(steps):
            if kind == "sum":
                continue
            x = left + i * (width + gap)
            if kind == "copy":
                p.box(x, y, width, 50, BLUE, words, 1)
            else:
                p.box(x, y + (0 if rank == 0 else 25), width, 25, ORANGE, words, 1)
    for i, (words, kind) in enumerate(steps):
        if kind == "sum":
            p.box(left + i * (width + gap), 84, width, 130, GREEN, words, 1)
    for i, (colour, what) in enumerate(((BLUE, "all of it on every rank"), (ORANGE, "this rank's part"), (GREEN, "they add up"))):
        p.box(16 + 180 * i, 44, 14, 14, colour)
        p.label(36 + 180 * i, 56, what, "start")
    p.label(16, 246, "forward: from left to right, two sums. Backward: from right to left, two sums where the orange parts begin.", "start", "quiet")
    p.label(16, 268, "Each sum sends 2 (t - 1) / t of the activations, rows x width x 4 bytes, from each of t ranks.", "start", "quiet")
    return p.end()


def main():
    wrong = 0
    for name, draw in (("shards.svg", shards), ("ranks.svg", ranks)):
        path, text = HERE / name, draw()
        if "--check" not in sys.argv[1:]:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path}: is not what docs/pictures/draw.py writes: run it")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
