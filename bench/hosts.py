#!/usr/bin/env python3
"""All-reduce over hosts that are network namespaces of this machine, whose links carry so much. For root, on Linux.

    hosts.py BIN_DIR [--hosts 2] [--ranks 2] [--rate 1gbit] [--quick]

`--ranks` workers on each. Prints what bench_hosts prints, and what the links of the hosts have carried.
"""
import argparse, json, os, pathlib, secrets, subprocess, sys

arguments = argparse.ArgumentParser()
arguments.add_argument("bin_dir", type=pathlib.Path)
arguments.add_argument("--hosts", type=int, default=2)
arguments.add_argument("--ranks", type=int, default=2)
arguments.add_argument("--rate", default="1gbit")
arguments.add_argument("--quick", action="store_true")
given = arguments.parse_args()
if os.geteuid():
    sys.exit("hosts.py: network namespaces are made by root: start it with sudo")
names = [f"troupe-bench-{os.getpid()}-{n}" for n in ("switch", *range(given.hosts))]


def ip(*command):
    subprocess.run(["ip", *map(str, command)], check=True)


def sent(host):
    out = subprocess.run(["ip", "-n", names[1 + host], "-s", "-j", "link", "show", "out"], check=True, capture_output=True, text=True).stdout
    return json.loads(out)[0]["stats64"]["tx"]["bytes"]


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
        subprocess.run(["tc", "-n", names[1 + host], "qdisc", "add", "dev", "out", "root", "tbf", "rate", given.rate, "burst", "256kb", "latency", "50ms"],
                       check=True)
    token = secrets.token_hex(32)
    jobs = []
    for rank in range(given.hosts * given.ranks):
        host = rank // given.ranks
        variables = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(given.hosts * given.ranks), "MASTER_ADDR": "10.79.0.1", "MASTER_PORT": "29400",
                     "TROUPE_TOKEN": token}
        jobs.append(subprocess.Popen(["ip", "netns", "exec", names[1 + host], given.bin_dir / "bench_hosts", *(["--quick"] if given.quick else [])],
                                     env=variables, stdout=None if rank == 0 else subprocess.DEVNULL))
    codes = [job.wait(600) for job in jobs]
    for host in range(given.hosts):
        print(f"host {host} has sent {sent(host) / 2**20:.1f} MiB", file=sys.stderr)
    sys.exit(max(codes))
finally:
    for name in names:
        subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)  # its links go with it
