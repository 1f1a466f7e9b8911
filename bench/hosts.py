#!/usr/bin/env python3
"""All-reduce over hosts that are network namespaces of this machine, whose links carry so much. For root, on Linux.

    hosts.py BIN_DIR [--hosts 2] [--ranks 2] [--rate 1gbit] [--quick] [--check]

`--ranks` workers on each. Prints what bench_hosts prints, and what the links of the hosts have carried. `--check`: a hierarchical sum of so many bytes
sends 2 (hosts - 1) / hosts of them from each host, within 5 %.
"""
import argparse, json, os, pathlib, secrets, shutil, subprocess, sys

arguments = argparse.ArgumentParser()
arguments.add_argument("bin_dir", type=pathlib.Path)
arguments.add_argument("--hosts", type=int, default=2)
arguments.add_argument("--ranks", type=int, default=2)
arguments.add_argument("--rate", default="1gbit")
arguments.add_argument("--quick", action="store_true")
arguments.add_argument("--check", action="store_true")
given = arguments.parse_args()
names = [f"troupe-bench-{os.getpid()}-{n}" for n in ("switch", *range(given.hosts))]

jobs = []


def stop(why):
    print(("test-skipped: " if given.check else "hosts.py: ") + why, file=sys.stderr)
    sys.exit(0 if given.check else 1)


def call(*command):
    if subprocess.run(list(map(str, command))).returncode:
        stop(f"this does not work here: {' '.join(map(str, command))}")


def ip(*command):
    call("ip", *command)


def sent(host):
    out = subprocess.run(["ip", "-n", names[1 + host], "-s", "-j", "link", "show", "out"], check=True, capture_output=True, text=True).stdout
    return json.loads(out)[0]["stats64"]["tx"]["bytes"]


def check(text):
    lines = [json.loads(line) for line in text.splitlines()]
    by_hosts = [line for line in lines if line["bench"] == "hosts_allreduce_hierarchical_us"]
    if not by_hosts:
        sys.exit("hosts.py: nothing was measured")
    for line in by_hosts:
        formula = 2 * (given.hosts - 1) / given.hosts * line["kib"] / 1024
        if abs(line["mib_from_host"] - formula) > 0.05 * formula:
            sys.exit(f"hosts.py: a host sends {line['mib_from_host']} MiB, and {formula} by the formula: {line}")
    all_sent, links = sum(line["mib_from_host"] for line in lines), [sent(host) / 2**20 for host in range(given.hosts)]
    if min(links) < all_sent:  # each sum is made at least once more, as a warm-up
        sys.exit(f"hosts.py: the hosts say that each has sent {all_sent:.1f} MiB at least, and their links {links}")


if os.geteuid() or not shutil.which("ip") or not shutil.which("tc"):
    stop("network namespaces are made by root, with ip and tc")
try:
    for name in names:
        ip("netns", "add", name)
    ip("-n", names[0], "link", "add", "bridge", "type", "bridge")
    ip("-n", names[0], "link", "set", "bridge", "up")
    for host in range(given.hosts):
        ip("link", "add", "out", "netns", names[1 + host], "type", "veth", "peer", "name", f"to{host}", "netns", names[0])
        ip("-n", names[0], "link", "set", f"to{host}", "master", "bridge", "up")
        ip("-n", names[1 + host], "address", "add", f"10.79.0.{host + 1}/24", "dev", "out")
        for link in ("lo", "out"):
            ip("-n", names[1 + host], "link", "set", link, "up")
        call("tc", "-n", names[1 + host], "qdisc", "add", "dev", "out", "root", "tbf", "rate", given.rate, "burst", "256kb", "latency", "50ms")
    token = secrets.token_hex(32)
    for rank in range(given.hosts * given.ranks):
        host = rank // given.ranks
        variables = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(given.hosts * given.ranks), "MASTER_ADDR": "10.79.0.1", "MASTER_PORT": "29400",
                     "TROUPE_TOKEN": token}
        jobs.append(subprocess.Popen(["ip", "netns", "exec", names[1 + host], given.bin_dir / "bench_hosts", *(["--quick"] if given.quick else [])],
                                     env=variables, stdout=subprocess.DEVNULL if rank else subprocess.PIPE, text=True))
    text = ""
    for line in jobs[0].stdout:
        print(line, end="", flush=True)
        text += line
    codes = [job.wait() for job in jobs]
    for host in range(given.hosts):
        print(f"host {host} has sent {sent(host) / 2**20:.1f} MiB", file=sys.stderr)
    if any(codes):
        sys.exit(f"hosts.py: exit codes {codes}")
    if given.check:
        check(text)
finally:
    for job in jobs:
        job.kill()
    for name in names:
        subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)  # its links go with it
