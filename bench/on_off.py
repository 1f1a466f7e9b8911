#!/usr/bin/env python3
"""Times a program with a mechanism and without it, in turns.

    on_off.py [--rounds N] WITHOUT COMMAND...

WITHOUT: what switches it off, a variable as TROUPE_POLLING=0; or "arena": large tensors go by sockets, and small messages by rings as
before (the processes may not have the addresses that an arena takes). Prints the wall time of a run in seconds, medians over the rounds
with the lowest and the highest, and the gain: a run without it over one with it, of each round. docs/contributing/decisions.md says what
a gain is good for.
"""
import argparse, os, resource, statistics, subprocess, sys, time

ADDRESSES = 48 << 30  # fewer than an arena's 64 GiB


def seconds(command, without):
    name, _, value = (without or "").partition("=")
    few_addresses = (lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))) if name == "arena" else None
    variables = {name: value} if value else {}
    start = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, env={**os.environ, **variables}, preexec_fn=few_addresses)
    if done.returncode:
        sys.exit(f"on_off: exit code {done.returncode}: {' '.join(command)}")
    return time.monotonic() - start


def summary(values):
    return f"{statistics.median(values):.3g} ({min(values):.3g}..{max(values):.3g})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("without", metavar="WITHOUT")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    args = parser.parse_args()
    if args.without != "arena" and "=" not in args.without:
        parser.error(f"'{args.without}' switches nothing off: expected \"arena\" or a variable with its value, NAME=0")
    if not args.command:
        parser.error("no command to time")
    on, off = [], []
    for round in range(args.rounds):
        for times, without in [(on, None), (off, args.without)][:: -1 if round % 2 else 1]:
            times.append(seconds(args.command, without))
        print(f"on_off: round {round + 1} of {args.rounds}: {on[-1]:.3g} s with it, {off[-1]:.3g} s without", file=sys.stderr, flush=True)
    print(f"with: {summary(on)} s; without: {summary(off)} s; gain {summary([b / a for a, b in zip(on, off)])}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
