#!/usr/bin/env python3
"""Windows of a file of tokens, shuffled, in batches, beside PyTorch's DataLoader: in turns, alone and under a step that computes.

    feed.py BIN PYTHON [--tar arrays|pictures] [--mib N] [--seconds N] [--turns N] [--step US]...

With --tar, samples of tar archives beside webdataset: arrays of float32 [1024], or JPEGs of 256 x 256 pixels resized to 64 x 64.
BIN, the folder of built programs; PYTHON, which has torch and numpy, for --tar webdataset and pillow. Two threads here, two workers there; windows of 1,024 uint16 ids,
32 to a batch, of a file in the system's cache. Prints one line of JSON for each step: medians over the turns of rows a second, of the
share of the time that a step waited, and how far the memory grew that is no file's.
"""
import argparse, json, os, pathlib, statistics, subprocess, sys, tempfile

PEER = pathlib.Path(__file__).with_name("torch_feed.py")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs"), parser.add_argument("python")
    parser.add_argument("--mib", type=int, default=1024), parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--turns", type=int, default=5), parser.add_argument("--step", type=int, action="append", metavar="US")
    parser.add_argument("--tar", choices=("arrays", "pictures"))
    args = parser.parse_args()

    def said(*command):
        ran = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        return json.loads(ran.stdout) if ran.returncode == 0 else sys.exit(f"feed: {command[0]} failed")

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/ids.bin"
        if args.tar:
            path = folder
            subprocess.run([args.python, str(PEER), "--make", args.tar, folder], check=True)
        else:
            with open(path, "wb") as file:
                for _ in range(args.mib):
                    file.write(os.urandom(1 << 20))
        for step in args.step or (0, 2000):
            rest = (path, str(args.seconds), "2", str(step))
            runs = {(f"{args.programs}/bench_feed", *rest): [], (args.python, str(PEER), *rest): []}
            for turn in range(args.turns):
                for command in list(runs)[:: -1 if turn % 2 else 1]:
                    runs[command].append(said(*command))
                print(f"feed: step of {step} us, turn {turn + 1} of {args.turns}: {[r[-1]['value'] for r in runs.values()]} rows/s", file=sys.stderr)
            ours, torch = runs.values()
            middle = lambda all, key: round(statistics.median(r[key] for r in all), 4)
            print(json.dumps({"bench": "feed" + (f" tar {args.tar}" if args.tar else ""), "step_us": step, "rows_per_s": middle(ours, "value"), "torch_rows_per_s": middle(torch, "value"),
                              "ratio": round(statistics.median(o["value"] / t["value"] for o, t in zip(ours, torch)), 2),
                              "waited": middle(ours, "waited"), "torch_waited": middle(torch, "waited"),
                              "memory_grows_mib": max(r["memory_grows_mib"] for r in ours), "torch": torch[0]["system"], "turns": args.turns}), flush=True)


main()
