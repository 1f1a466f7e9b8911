#!/usr/bin/env python3
"""Jobs over hosts that are network namespaces of this machine, whose links carry so much. For root, on Linux.

    hosts.py BIN_DIR [--hosts 2] [--ranks 2] [--rate 1gbit] [--quick] [--check]
    hosts.py BIN_DIR [--hosts 2] [--ranks 2] [--rate 1gbit] [--quick] --beside PYTHON [--rounds 3] [--part all|sums|tensors|steps]

Both take --delay MS, one way, and --loss PERCENT, of packets. `--ranks` workers on each. The first prints sums by each way (bench_hosts), and what the links of the hosts have carried. `--check`: a hierarchical sum of
so many bytes sends 2 (hosts - 1) / hosts of them from each host, within 5 %.

`--beside`: sums, training steps and tensors of 64 MiB (bench_links), beside those of Gloo in the PyTorch of that interpreter (torch_hosts.py), in turns; the
tensors beside raw sockets, too (raw_socket.py). Ratios are speed, ours over the peer's.
"""
import argparse, json, pathlib, signal, subprocess, sys

from namespaces import Hosts, Missing

here = pathlib.Path(__file__).parent
arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("bin_dir", type=pathlib.Path)
arguments.add_argument("--hosts", type=int, default=2)
arguments.add_argument("--ranks", type=int, default=2)
arguments.add_argument("--rate", default="1gbit")
arguments.add_argument("--delay", type=float, default=0)
arguments.add_argument("--loss", type=float, default=0)
arguments.add_argument("--quick", action="store_true")
arguments.add_argument("--check", action="store_true")
arguments.add_argument("--beside", metavar="PYTHON")
arguments.add_argument("--rounds", type=int, default=3)
arguments.add_argument("--part", default="all", choices=["all", "sums", "tensors", "steps"])
given = arguments.parse_args()
quick = ["--quick"] if given.quick else []
part = ["--part", given.part]


def check(text, hosts):
    lines = [json.loads(line) for line in text.splitlines()]
    by_hosts = [line for line in lines if line["bench"] == "hosts_allreduce_hierarchical_us"]
    if not by_hosts:
        sys.exit("hosts.py: nothing was measured")
    for line in by_hosts:
        formula = 2 * (given.hosts - 1) / given.hosts * line["kib"] / 1024
        if abs(line["mib_from_host"] - formula) > 0.05 * formula:
            sys.exit(f"hosts.py: a host sends {line['mib_from_host']} MiB, and {formula} by the formula: {line}")
    all_sent, links = sum(line["mib_from_host"] for line in lines), [hosts.sent(host) / 2**20 for host in range(given.hosts)]
    if min(links) < all_sent:  # each sum is made at least once more, as a warm-up
        sys.exit(f"hosts.py: the hosts say that each has sent {all_sent:.1f} MiB at least, and their links {links}")


def sums(hosts):
    text = ""
    for line in hosts.run([given.bin_dir / "bench_hosts", *quick], given.ranks):
        print(line, end="", flush=True)
        text += line
    for host in range(given.hosts):
        print(f"host {host} has sent {hosts.sent(host) / 2**20:.1f} MiB", file=sys.stderr)
    if given.check:
        check(text, hosts)


def raw(hosts):
    """Lines of a sender on host 0 and a receiver on the last one."""
    receiver = hosts.start(given.hosts - 1, [sys.executable, here / "raw_socket.py", *quick], subprocess.PIPE)
    if receiver.stdout.readline() != "listening\n":
        raise RuntimeError("raw_socket.py does not listen")
    sender = hosts.start(0, [sys.executable, here / "raw_socket.py", *quick, f"10.79.0.{given.hosts}"], subprocess.PIPE)
    lines = list(sender.stdout)
    if sender.wait() or receiver.wait():
        raise RuntimeError("raw_socket.py failed")
    return lines


def beside(hosts):
    import compare
    tables = {"Gloo": {}, "raw": {}}
    systems = {}
    for number in range(given.rounds):
        peers = {"Gloo": hosts.run([given.beside, here / "torch_hosts.py", *quick, *part], given.ranks, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="out",
                                   TP_SOCKET_IFNAME="out"), "raw": raw(hosts)}
        peers = {name: [json.loads(line) for line in lines if line.startswith("{")] for name, lines in peers.items()}
        ours = [json.loads(line) for line in hosts.run([given.bin_dir / "bench_links", *quick, *part], given.ranks)]
        for name, table in tables.items():
            for line in ours:
                peer = next((p for p in peers[name] if compare.same(line, p)), None)
                if not peer:
                    continue
                compare.check_losses(line, peer)
                systems[name] = peer["system"]
                unit, mine, theirs, ratios = table.setdefault(compare.key(line), (line["unit"], [], [], []))
                mine.append(line["value"])
                theirs.append(peer["value"])
                ratios.append(compare.ratio(line, peer))
        print(f"hosts.py: round {number + 1} of {given.rounds}", file=sys.stderr, flush=True)
    for name, table in tables.items():
        if not table:
            continue
        compare.show(table, [systems[name]], True)
        print()


def stop(why):
    print(("test-skipped: " if given.check else "hosts.py: ") + str(why), file=sys.stderr)
    sys.exit(0 if given.check else 1)


if __name__ == "__main__":
    if given.beside and subprocess.run([given.beside, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode:
        stop(f"{given.beside} has no PyTorch: give --beside an interpreter that imports torch")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the hosts go all the same
    try:
        with Hosts(given.hosts, given.rate, given.bin_dir, given.delay, given.loss) as its_hosts:
            (beside if given.beside else sums)(its_hosts)
    except Missing as why:
        stop(why)
    except RuntimeError as why:
        sys.exit(f"hosts.py: {why}")
