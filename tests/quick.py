#!/usr/bin/env python3
"""Chooses what ./dev test --quick leaves out: the tests that took longest last time, until the others fit the time.

    quick.py --record BUILD_FOLDER       adds the times of its tests.xml to those kept in test_times.json (ctest's own file of
                                         times forgets tests whose names have spaces when they do not run)
    quick.py BUILD_FOLDER [SECONDS]      prints a regular expression for `ctest -E`, and on stderr which tests it leaves out

A test that has not run yet is taken, but for those that are known to be long.
"""
import json, os, pathlib, re, sys, xml.etree.ElementTree as tree

LONG = ("bench-pipeline", "docs-blocks", "docs-programs", "install", "misuse", "subproject", "ops: products without tiles",
        *(f"{label}: all, at each lower level" for label in ("ops", "oracle", "repl")))


def kept(folder):
    """{test: seconds}."""
    file = folder / "test_times.json"
    return json.loads(file.read_text()) if file.exists() else {}


def record(folder):
    times = kept(folder)
    for case in tree.parse(folder / "tests.xml").iter("testcase"):
        if case.get("status") in ("run", "fail"):
            times[case.get("name")] = float(case.get("time"))
    (folder / "test_times.json").write_text(json.dumps(times, indent=0, sort_keys=True))


def left_out(times, seconds):
    """The longest of the tests, so that the others take that long together; and how long those take."""
    out = [name for name in LONG if name not in times]
    total = sum(times.values())
    for name in sorted(times, key=times.get, reverse=True):
        if total <= seconds:
            break
        out.append(name)
        total -= times[name]
    return out, total


if __name__ == "__main__":
    if sys.argv[1] == "--record":
        record(pathlib.Path(sys.argv[2]))
        sys.exit()
    cores = len(os.sched_getaffinity(0))
    limit = float(sys.argv[2]) if len(sys.argv) > 2 else 150  # beside which two minutes are for building
    out, total = left_out(kept(pathlib.Path(sys.argv[1])), limit * cores)
    print(f"quick: tests of {total / cores:.0f} s; left out, as the longest: {'; '.join(sorted(out)) or 'none'}", file=sys.stderr)
    print("^(" + "|".join(re.sub(r"([][()*+?.^$|\\])", r"\\\1", name) for name in out) + ")$")
