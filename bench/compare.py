#!/usr/bin/env python3
"""Runs our benchmarks and a peer's in turn, and prints how they compare.

    compare.py BIN_DIR PEER [--rounds N] [--markdown] [rpc|tcp|model|ps|ops|operators|pipeline|chain|collectives|mpi|ddp|sharded|axes ...]

tcp: ours as for rpc, but over TCP on loopback; the peer as for rpc, with its shared memory.
mpi: ours as for collectives; the peer is Open MPI where it is installed (bench/mpi_peer.py).

TROUPE_PEER_PYTHON lists the interpreters that run the peer, separated by colons (/usr/bin/python3 unless set): those of
several versions of PyTorch, say. Each line is set beside the fastest of them in its round. A peer has one thread for its
products too (OPENBLAS_NUM_THREADS=1: OpenBLAS asks for all cores).

Both print lines of JSON {"system", "bench", "value", "unit", ...}. Lines are matched on "bench" and on every further key
that both have and that is no measurement: two of ours that differ in another key are set beside the same one of the
peer. Losses that both print have to agree. Each round runs both, so that a slow minute of the machine hits both; values and ratios are medians over the rounds,
with the lowest and the highest value behind them. The ratio is speed: above 1, ours is faster. "best" is the ratio of the best value of each side over all rounds, which a machine that is slow at
times (a neighbour's virtual machine on the other hyperthread of a core) distorts least. What other programs took of the
processor meanwhile is said for each round; --quiet waits, before each, for them to leave it alone.
"""
import argparse, os, statistics, sys, time

from programs import PROCESSES, command, lines, lines_over_tcp

MEASURED = {"system", "value", "unit", "gb_per_s", "bus_gb_per_s", "speedup", "of_formula", "through_caller_us", "by_messages_us", "losses"}
TIMES = {"ns", "us", "ms", "s"}
VARIANTS = {"tcp": "rpc", "mpi": "collectives"}  # another way, or another peer, of a program of ours
OTHER_PEERS = {"operators": "torch_operators.py", "mpi": "mpi_peer.py"}  # the peer's operators are our own list
PEERS_NAMES = {"tcp": "rpc", "collectives": "allreduce"}


class Others:
    """Share of the machine's processor time, from 0 to 1, that went to programs other than this one and its children."""

    def __init__(self):
        self.start, self.cpu, self.own = time.monotonic(), self.busy(), self.ours()

    @staticmethod
    def busy():
        with open("/proc/stat") as stat:
            user, nice, system, idle, iowait, *rest = map(int, stat.readline().split()[1:9])
        return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def ours():
        return sum(os.times()[:4])

    def share(self):
        used = (self.busy() - self.cpu) - (self.ours() - self.own)
        return max(0.0, used / (time.monotonic() - self.start) / os.cpu_count())


def wait_until_quiet():
    """Until others leave nine tenths of the processor alone for two seconds; ten minutes at most."""
    for _ in range(300):
        others = Others()
        time.sleep(2)
        if others.share() < 0.1:
            return
    print("compare: the machine does not get quiet; measuring all the same", file=sys.stderr, flush=True)


def key(line):
    return " ".join([line["bench"], *(f"{k}={v}" for k, v in line.items() if k not in MEASURED and k != "bench")])


def same(ours, peer):
    return ours["bench"] == peer["bench"] and all(ours[k] == peer[k] for k in (ours.keys() & peer.keys()) - MEASURED)


def ratio(ours, peer):
    """Speed of ours over the peer's; None where they cannot be compared."""
    if not ours["value"] or not peer["value"] or ours["unit"] != peer["unit"]:
        return None
    return peer["value"] / ours["value"] if ours["unit"] in TIMES else ours["value"] / peer["value"]


def check_losses(ours, peer):
    """Both train the same model on the same batch: a step that is quicker because it does something else ends the run."""
    for i, (a, b) in enumerate(zip(ours.get("losses", ()), peer.get("losses", ()))):
        if not abs(a - b) <= 1e-4:
            sys.exit(f"compare: {ours['bench']}: the loss of step {i + 1} is {a:.7f}, that of {peer['system']} {b:.7f}; expected a difference of 1e-4 at most")


def best(values, unit):
    return min(values) if unit in TIMES else max(values)


def run(bin_dir, what):
    printed = lines_over_tcp(bin_dir, "rpc") if what == "tcp" else lines(command(bin_dir, VARIANTS.get(what, what)))
    if printed is None:
        sys.exit(f"compare: our {what} failed")
    return printed


def run_peers(program, what):
    """What the fastest peer printed for each line. One that cannot run this benchmark is left out, if another can."""
    if what in OTHER_PEERS:
        program = os.path.join(os.path.dirname(__file__), OTHER_PEERS[what])
    what = PEERS_NAMES.get(what, what)
    fastest = {}
    for python in os.environ.get("TROUPE_PEER_PYTHON", "/usr/bin/python3").split(":"):
        printed = lines([python, program, what], OPENBLAS_NUM_THREADS="1")
        if printed is None:
            print(f"compare: failed: {python} {program} {what}", file=sys.stderr, flush=True)
        for line in printed or []:
            best = fastest.setdefault(key(line), line)
            if (ratio(best, line) or 1) < 1:
                fastest[key(line)] = line
    if not fastest and what != "mpi":
        sys.exit("compare: no peer could run; TROUPE_PEER_PYTHON lists the interpreters to try")
    return list(fastest.values())


def number(x):
    """Four digits, more where they are before the point."""
    return f"{x:.0f}" if abs(x) >= 1000 else f"{x:.4g}"


def summary(values):
    if not values:
        return "-"
    return f"{number(statistics.median(values))} ({number(min(values))}..{number(max(values))})"


def show(table, systems, markdown):
    rows = [("bench", "unit", "ours", ", ".join(systems), "ratio", "best")]
    for name, (unit, mine, theirs, ratios) in table.items():
        speed = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})" if ratios else "-"
        ends = ratio(*({"value": best(x, unit), "unit": unit} for x in (mine, theirs))) if ratios else None
        rows.append((name, unit, summary(mine), summary(theirs), speed, f"{ends:.2f}" if ends else "-"))
    if markdown:
        rows.insert(1, ("---", "---", "---:", "---:", "---:", "---:"))
        for row in rows:
            print("| " + " | ".join(row) + " |")
        return
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    for row in rows:
        print("  ".join(row[i].ljust(widths[i]) if i < 2 else row[i].rjust(widths[i]) for i in range(6)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("peer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--markdown", action="store_true", help="print the table in Markdown")
    parser.add_argument("--quiet", action="store_true", help="wait before each round until other programs are idle")
    parser.add_argument("what", nargs="*", default=[])
    args = parser.parse_intermixed_args()
    if args.rounds < 1:
        parser.error(f"--rounds: expected at least 1, got {args.rounds}")
    for what in args.what:
        if what not in [*PROCESSES, *VARIANTS]:
            parser.error(f"no benchmark '{what}'; there are: {' '.join([*VARIANTS, *PROCESSES])}")

    table = {}  # key: (unit, our values, peer values, ratios), in the order of the first round
    systems = {}  # the peers', in the order in which they come
    for what in args.what or PROCESSES:
        prefix = f"{what}: " if what in VARIANTS else ""
        for round in range(args.rounds):
            if args.quiet:
                wait_until_quiet()
            others = Others()
            peers = run_peers(args.peer, what)
            systems.update((p["system"], None) for p in peers)
            alone = list(peers)  # what we have nothing to set beside
            for ours in run(args.bin_dir, what):
                unit, mine, theirs, ratios = table.setdefault(prefix + key(ours), (ours["unit"], [], [], []))
                mine.append(ours["value"])
                peer = next((p for p in peers if same(ours, p)), None)
                speed = ratio(ours, peer) if peer else None
                if speed is not None:
                    check_losses(ours, peer)
                    alone = [p for p in alone if p is not peer]
                    theirs.append(peer["value"])
                    ratios.append(speed)
            for peer in alone:
                table.setdefault(prefix + key(peer), (peer["unit"], [], [], []))[2].append(peer["value"])
            print(f"compare: {what}, round {round + 1} of {args.rounds}; others had {100 * others.share():.0f} % of the "
                  "processor", file=sys.stderr, flush=True)
    show(table, systems, args.markdown)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
