#!/usr/bin/env python3
"""Chooses what ./dev test --quick leaves out: the tests that took longest last time, until the others fit the time.

    quick.py BUILD_FOLDER [SECONDS]

Prints a regular expression for `ctest -E`; says on stderr which tests it leaves out. Times are those that ctest keeps; a test
that has not run yet is taken, but for those that are known to be long.
"""
import os, pathlib, re, sys

LONG = ("install", "subproject", "misuse", "docs-blocks", "docs-programs", "ops: all, at each lower level",
        "ops: products without tiles", "oracle: all, at each lower level", "repl: all, at each lower level")


def times(folder):
    """{test: seconds, or None for one that has not run}."""
    kept = pathlib.Path(folder) / "Testing/Temporary/CTestCostData.txt"
    found = dict.fromkeys(LONG)
    for line in kept.read_text().split("\n---")[0].splitlines() if kept.exists() else ():
        name, runs, seconds = line.rsplit(" ", 2)
        found[name] = float(seconds) if int(runs) else None
    return found


def left_out(found, seconds):
    """The longest of the tests, so that the others take that long together."""
    out = [name for name in LONG if found[name] is None]
    known = sorted(((took, name) for name, took in found.items() if took is not None), reverse=True)
    total = sum(took for took, _ in known)
    for took, name in known:
        if total <= seconds:
            break
        out.append(name)
        total -= took
    return out, total


if __name__ == "__main__":
    cores = len(os.sched_getaffinity(0))
    limit = float(sys.argv[2]) if len(sys.argv) > 2 else 150  # beside which two minutes are for building
    out, total = left_out(times(sys.argv[1]), limit * cores)
    print(f"quick: tests of {total / cores:.0f} s; left out, as the longest: {', '.join(sorted(out)) or 'none'}", file=sys.stderr)
    print("^(" + "|".join(re.sub(r"([][()*+?.^$|\\])", r"\\\1", name) for name in out) + ")$")
