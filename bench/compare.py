#!/usr/bin/env python3
"""Runs our benchmarks and a peer's in turn, and prints how they compare.

    compare.py BIN_DIR PEER [--rounds N] [rpc|model|ops ...]

Both print lines of JSON {"system", "bench", "value", "unit", ...}. Lines are matched on "bench" and on every further key
that both have and that is no measurement. Each round runs both, so that a slow minute of the machine hits both; values
and ratios are medians over the rounds. The ratio is speed: above 1, ours is faster.
"""
import argparse, json, os, statistics, subprocess, sys

MEASURED = {"system", "value", "unit", "gb_per_s", "bus_gb_per_s", "speedup"}
TIMES = {"ns", "us", "ms", "s"}


def lines(command):
    """The JSON lines that a program prints."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"compare: {' '.join(command)} failed with exit code {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def key(line):
    return " ".join([line["bench"], *(f"{k}={v}" for k, v in line.items() if k not in MEASURED and k != "bench")])


def same(ours, peer):
    return ours["bench"] == peer["bench"] and all(ours[k] == peer[k] for k in (ours.keys() & peer.keys()) - MEASURED)


def ratio(ours, peer):
    """Speed of ours over the peer's; None where they cannot be compared."""
    if not ours["value"] or not peer["value"] or ours["unit"] != peer["unit"]:
        return None
    return peer["value"] / ours["value"] if ours["unit"] in TIMES else ours["value"] / peer["value"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("peer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("what", nargs="*", default=[])
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds: expected at least 1")

    table = {}  # key of ours: (unit, our values, peer values, ratios), in the order of the first round
    for what in args.what or ["rpc", "model", "ops"]:
        for round in range(args.rounds):
            print(f"compare: {what}, round {round + 1} of {args.rounds}", file=sys.stderr, flush=True)
            peers = lines(["/usr/bin/python3", args.peer, what])
            for ours in lines([os.path.join(args.bin_dir, f"bench_{what}")]):
                unit, mine, theirs, ratios = table.setdefault(key(ours), (ours["unit"], [], [], []))
                mine.append(ours["value"])
                peer = next((p for p in peers if same(ours, p)), None)
                speed = ratio(ours, peer) if peer else None
                if speed is not None:
                    theirs.append(peer["value"])
                    ratios.append(speed)

    print(f"{'bench':52} {'ours':>12} {'peer':>12} {'unit':8} {'ratio':>8}")
    for name, (unit, mine, theirs, ratios) in table.items():
        peer = f"{statistics.median(theirs):12.2f}" if theirs else f"{'-':>12}"
        speed = f"{statistics.median(ratios):7.2f}x" if ratios else f"{'-':>8}"
        print(f"{name:52} {statistics.median(mine):12.2f} {peer} {unit:8} {speed}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
