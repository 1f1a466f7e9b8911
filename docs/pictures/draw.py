#!/usr/bin/env python3
"""Draws pictures that follow from formulas alone: shards.svg, of docs/howto/sharded.md, ranks.svg, of
docs/howto/tensor-parallel.md, zigzag.svg, of long-sequences.md, and experts.svg, of experts.md.

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


def zigzag():
    p = Picture(960, 250, "A sequence on four ranks: which positions each has, and its work under a causal mask")
    colours, left, width = (BLUE, ORANGE, GREEN, PINK), 110, 80
    for y, name, owners in ((70, "in order", (0, 0, 1, 1, 2, 2, 3, 3)), (140, "zigzag", (0, 1, 2, 3, 3, 2, 1, 0))):
        p.label(16, y + 24, name, "start")
        for piece, rank in enumerate(owners):
            p.box(left + piece * (width + 2), y, width, 38, colours[rank], f"rank {rank}", 1)
        # A query of piece i sees the i pieces before, and half of its own.
        work = [sum(i + 0.5 for i, owner in enumerate(owners) if owner == rank) / 32 for rank in range(4)]
        p.label(left + 8 * (width + 2) + 8, y + 16, "work of ranks 0 to 3:", "start", "quiet")
        p.label(left + 8 * (width + 2) + 8, y + 32, ", ".join(f"{100 * w:.0f} %" for w in work), "start")
    p.label(left, 60, "positions from first to last, in eight pieces", "start", "quiet")
    p.label(16, 222, "The ranks meet in attention alone: by heads in two exchanges, by a ring in three hops of keys and values.", "start", "quiet")
    return p.end()


def experts():
    p = Picture(960, 290, "Five experts on three ranks: tokens go to the experts that they chose, and back")
    colours, of_expert = (BLUE, BLUE, ORANGE, ORANGE, GREEN), (0, 0, 1, 1, 2)
    chosen = ((0, 2, 4, 2), (1, 2, 3), (4, 0, 2, 3))  # experts of each rank's tokens
    rows = {e: [(r, t) for r in range(3) for t, c in enumerate(chosen[r]) if c == e] for e in range(5)}
    for rank in range(3):
        y = 70 + 62 * rank
        p.label(16, y + 24, f"rank {rank}", "start")
        for t, e in enumerate(chosen[rank]):
            p.box(80 + 50 * t, y, 44, 38, colours[e], f"to {e}", 1)
    for e in range(5):
        y = 64 + 62 * of_expert[e] + (26 if e in (1, 3) else 0)
        p.label(404, y + 17, f"expert {e}", "start")
        for i, (rank, _) in enumerate(rows[e]):
            p.box(470 + 60 * i, y, 54, 22, colours[e], f"of {rank}", 1)
    for rank in range(3):
        y = 70 + 62 * rank
        p.label(730, y + 24, f"rank {rank}", "start")
        for t, e in enumerate(chosen[rank]):
            p.box(786 + 40 * t, y, 36, 38, colours[e], f"{e}", 1)
    p.label(80, 58, "the choices of its tokens", "start", "quiet")
    p.label(404, 58, "what its experts got", "start", "quiet")
    p.label(786, 58, "what came back", "start", "quiet")
    p.label(16, 274, "An exchange each way, forward and back: choices x width x 4 bytes, less those whose expert is on the rank itself.", "start", "quiet")
    return p.end()


def main():
    wrong = 0
    for name, draw in (("shards.svg", shards), ("ranks.svg", ranks), ("zigzag.svg", zigzag), ("experts.svg", experts)):
        path, text = HERE / name, draw()
        if "--check" not in sys.argv[1:]:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path}: is not what docs/pictures/draw.py writes: run it")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
