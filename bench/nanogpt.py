#!/usr/bin/env python3
"""nanoGPT's configuration for CPUs, here and in PyTorch, in turns on one thread: time of an iteration, and validation losses.

    nanogpt.py BIN TEXT [--python PYTHON] [--turns N] [--iterations N] [--losses]

PYTHON has torch. Prints one line of JSON: microseconds of an iteration, medians over the turns, and the median of the turns' ratios;
with --losses the validation losses of whole runs of 2,000 iterations, too (minutes).
"""
import argparse, json, os, pathlib, statistics, subprocess, sys

PEER = pathlib.Path(__file__).with_name("nanogpt_peer.py")


def said(command):
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return json.loads(ran.stdout) if ran.returncode == 0 else sys.exit(f"nanogpt: {command[0]} failed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin"), parser.add_argument("text")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--turns", type=int, default=7), parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--losses", action="store_true")
    args = parser.parse_args()
    ours = lambda n: said([os.path.join(args.bin, "bench_nanogpt"), args.text, "--iterations", str(n)])
    theirs = lambda n: said([args.python, str(PEER), args.text, "--iterations", str(n)])
    troupe, peer = [], []
    for turn in range(args.turns):
        for times, run in ((troupe, ours), (peer, theirs))[:: -1 if turn % 2 else 1]:
            said_now = run(args.iterations)
            times.append(said_now["iteration_us"])
        print(f"nanogpt: turn {turn + 1} of {args.turns}: {troupe[-1]:.0f} us, {peer[-1]:.0f} us in PyTorch", file=sys.stderr, flush=True)
    line = {"bench": "nanogpt", "troupe_us": round(statistics.median(troupe), 1), "pytorch_us": round(statistics.median(peer), 1),
            "ratio": round(statistics.median(a / b for a, b in zip(troupe, peer)), 4), "turns": args.turns}
    if args.losses:
        line |= {"troupe_loss": ours(2000)["validation_loss"], "pytorch_loss": theirs(2000)["validation_loss"]}
    print(json.dumps(line))


main()
