"""Hosts that are network namespaces of this machine, whose links carry so much: for root, on Linux. hosts.py measures on them."""
import json, os, re, secrets, shutil, subprocess


class Missing(Exception):
    """The machine cannot have such hosts: a sentence says why."""


def call(*command):
    if subprocess.run(list(map(str, command))).returncode:
        raise Missing(f"this does not work here: {' '.join(map(str, command))}")


def megabits(rate):
    number, unit = re.fullmatch(r"([\d.]+)([mg])bit", rate).groups()
    return float(number) * (1000 if unit == "g" else 1)


def burst(rate):
    """Bytes that a link lets go at once: what it carries in 2 ms, within what a packet is and what keeps a processor fed."""
    return int(min(max(megabits(rate) * 1e6 / 8 * 2e-3, 32 << 10), 256 << 10))


class Hosts:
    """with Hosts(2, "1gbit") as hosts: ... Host n has the address 10.79.0.(n + 1), by its device `out`. With a delay, in ms one way, or losses, in percent of
    packets, the program slow_links of `bin_dir` carries them; else veth and tbf."""

    def __init__(self, count, rate, bin_dir=None, delay=0, loss=0):
        if os.geteuid() or not shutil.which("ip") or not shutil.which("tc"):
            raise Missing("network namespaces are made by root, with ip and tc")
        self.count, self.rate, self.jobs, self.carrier = count, rate, [], None
        self.slow = [f"{bin_dir}/slow_links", megabits(rate), round(1000 * delay), round(10_000 * loss)] if delay or loss else None
        self.switch, *self.names = [f"troupe-bench-{os.getpid()}-{n}" for n in ("switch", *range(count))]

    def __enter__(self):
        try:
            self.begin()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_):
        self.end()

    def begin(self):
        for name in (self.switch, *self.names):
            call("ip", "netns", "add", name)
        if self.slow:
            self.begin_slow()
        else:
            self.begin_fast()

    def begin_slow(self):
        self.carrier = subprocess.Popen([*map(str, self.slow), *self.names], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.carrier.stdout.readline() != "ready\n":
            raise Missing(f"this does not work here: {' '.join(map(str, self.slow))}")
        for host, name in enumerate(self.names):
            call("ip", "-n", name, "link", "set", "out", "txqueuelen", "10000")  # what waits for slow_links to run is not lost
            self.address(host)

    def begin_fast(self):
        call("ip", "-n", self.switch, "link", "add", "bridge", "type", "bridge")
        call("ip", "-n", self.switch, "link", "set", "bridge", "up")
        for host, name in enumerate(self.names):
            call("ip", "link", "add", "out", "netns", name, "type", "veth", "peer", "name", f"to{host}", "netns", self.switch)
            call("ip", "-n", self.switch, "link", "set", f"to{host}", "master", "bridge", "up")
            self.address(host)
            call("tc", "-n", name, "qdisc", "add", "dev", "out", "root", "tbf", "rate", self.rate, "burst", str(burst(self.rate)), "latency", "50ms")

    def address(self, host):
        call("ip", "-n", self.names[host], "address", "add", f"10.79.0.{host + 1}/24", "dev", "out")
        for link in ("lo", "out"):
            call("ip", "-n", self.names[host], "link", "set", link, "up")

    def end(self):
        for job in self.jobs:
            job.kill()
            job.wait()
        if self.carrier:
            self.carrier.stdin.close()
            self.carrier.wait()
        for name in (self.switch, *self.names):
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)  # its links go with it

    def start(self, host, command, output=subprocess.DEVNULL, **variables):
        self.jobs.append(subprocess.Popen(["ip", "netns", "exec", self.names[host], *map(str, command)], stdout=output, text=True,
                                          env={**os.environ, **variables}))
        return self.jobs[-1]

    def run(self, command, ranks, **variables):
        """A job of that many ranks on each host. The lines of rank 0; RuntimeError with the exit codes if it fails."""
        world, token, jobs = self.count * ranks, secrets.token_hex(32), []
        for rank in range(world):
            jobs.append(self.start(rank // ranks, command, subprocess.DEVNULL if rank else subprocess.PIPE, RANK=str(rank), WORLD_SIZE=str(world),
                                   MASTER_ADDR="10.79.0.1", MASTER_PORT="29400", TROUPE_TOKEN=token, **variables))
        yield from jobs[0].stdout
        codes = [job.wait() for job in jobs]
        if any(codes):
            raise RuntimeError(f"{command[0]}: exit codes {codes}")

    def sent(self, host):
        """Bytes that its link has carried."""
        out = subprocess.run(["ip", "-n", self.names[host], "-s", "-j", "link", "show", "out"], check=True, capture_output=True, text=True).stdout
        return json.loads(out)[0]["stats64"]["tx"]["bytes"]
