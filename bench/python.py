#!/usr/bin/env python3
"""A step of a digit classifier in two actors, in Python beside C++, in turns; and the memory of 10,240 steps in Python.

    python.py BUILD PYTHON [--turns N] [--epochs N]

BUILD, a build folder; PYTHON, which the package is for. Prints one line of JSON: microseconds of a step, medians over the turns, the median
of the turns' ratios, and megabytes along the long run.
"""
import argparse, json, os, pathlib, statistics, subprocess, sys

STEP = pathlib.Path(__file__).with_name("python_step.py")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build"), parser.add_argument("python")
    parser.add_argument("--turns", type=int, default=11), parser.add_argument("--epochs", type=int, default=40)
    args = parser.parse_args()

    def said(*command):
        ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": args.build + "/python"})
        return json.loads(ran.stdout) if ran.returncode == 0 else sys.exit(f"python: {command[0]} failed")

    cpp = lambda: said(args.build + "/bin/bench_python", "--epochs", str(args.epochs))["step_us"]
    python = lambda: said(args.python, "-B", STEP, str(args.epochs))["step_us"]
    times = {cpp: [], python: []}
    for turn in range(args.turns):
        for run in (cpp, python)[:: -1 if turn % 2 else 1]:
            times[run].append(run())
        print(f"python: turn {turn + 1} of {args.turns}: {times[python][-1]:.0f} us, {times[cpp][-1]:.0f} us in C++", file=sys.stderr, flush=True)
    long = said(args.python, "-B", STEP, "320")
    print(json.dumps({"bench": "python", "python_us": round(statistics.median(times[python]), 1), "cpp_us": round(statistics.median(times[cpp]), 1),
                      "ratio": round(statistics.median(p / c for p, c in zip(times[python], times[cpp])), 4), "turns": args.turns,
                      "steps": long["steps"], "megabytes": long["megabytes"]}))


main()
