#!/usr/bin/env python3
"""Breaks links of jobs whose workers are on hosts: all connections of a host are reset, again and again, or its link is down for three seconds. No worker is lost,
and the job ends with the checkpoint that an undisturbed run ends with, bit for bit. For root, on Linux: the hosts are network namespaces.

    links.py BIN [--job NAME]... [--resets N] [--tls] [--seed N]

BIN is the folder of the built programs.
"""
import argparse, os, pathlib, random, secrets, shutil, subprocess, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from kills import TEXT, newest, steps_in

# Workers, program and its flags: some seconds.
JOBS = {
    "digits": (3, ["digits", "--epochs", "6", "--checkpoint-every", "200"]),
    "data_parallel": (3, ["data_parallel", "--epochs", "3", "--checkpoint-every", "50"]),
    "sharded": (4, ["sharded", "--steps", "120", "--width", "32", "--mesh", "dp=2,tp=2", "--shard", "all", "--checkpoint-every", "20", "text"]),
    "recommender": (4, ["recommender", "--steps", "400", "--batch", "64", "--checkpoint-every", "50"]),
}
PATIENCE = 120  # seconds for a job


def stop(why):
    print("test-skipped: " + why, file=sys.stderr)
    sys.exit(0)


class Hosts:
    """Two of them, and a link between."""

    def __init__(self):
        self.names = [f"troupe-links-{os.getpid()}-{n}" for n in range(2)]

    def __enter__(self):
        for name in self.names:
            self.ip("netns", "add", name)
        self.ip("link", "add", "out", "netns", self.names[0], "type", "veth", "peer", "name", "out", "netns", self.names[1])
        for n, name in enumerate(self.names):
            self.ip("-n", name, "address", "add", f"10.78.0.{n + 1}/24", "dev", "out")
            for link in ("lo", "out"):
                self.ip("-n", name, "link", "set", link, "up")
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)

    @staticmethod
    def ip(*command):
        if subprocess.run(["ip", *command]).returncode:
            stop(f"this does not work here: ip {' '.join(command)}")

    def link(self, host, state):
        self.ip("-n", self.names[host], "link", "set", "out", state)

    def reset(self, host):
        """How many connections between hosts that ended."""
        done = subprocess.run(["ip", "netns", "exec", self.names[host], "ss", "-H", "-t", "-K", "state", "established", "dst", "10.78.0.0/24"],
                              capture_output=True, text=True)
        return len(done.stdout.splitlines())


class Job:
    def __init__(self, hosts, programs, name, folder, tls):
        self.workers, (program, *flags) = JOBS[name]
        self.checkpoints = folder / "checkpoints"
        folder.mkdir(parents=True)
        (folder / "text").write_text(TEXT)
        self.log = open(folder / "log", "w+")
        variables = {**os.environ, "WORLD_SIZE": str(self.workers), "MASTER_ADDR": "10.78.0.1", "MASTER_PORT": "29400", "TROUPE_TOKEN": secrets.token_hex(32),
                     "TROUPE_LOG": "info", "TROUPE_TLS": "1" if tls else "0"}
        self.processes = [subprocess.Popen(["ip", "netns", "exec", hosts.names[rank % 2], str(programs / program), "--checkpoint", str(self.checkpoints), *flags],
                                           cwd=folder, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env={**variables, "RANK": str(rank)})
                          for rank in range(self.workers)]

    def runs(self):
        return all(p.poll() is None for p in self.processes)

    def came_to(self, checkpoints):
        """Whether so many have been made, and it still runs."""
        while self.runs():
            steps = steps_in(self.checkpoints) if self.checkpoints.exists() else []
            if len(steps) >= checkpoints:
                return True
            time.sleep(0.005)
        return False

    def text(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read()

    def result(self):
        try:
            codes = [p.wait(PATIENCE) for p in self.processes]
        finally:
            for p in self.processes:
                p.kill()
        if any(codes):
            raise AssertionError(f"exit codes {codes}:\n{self.text()[-4000:]}")
        return newest(self.checkpoints)


def disturb(hosts, job, resets, rng):
    """Resets first, then three seconds without a link. What it did."""
    broken = 0
    if not job.came_to(1):
        raise AssertionError(f"ended before it could be disturbed:\n{job.text()[-2000:]}")
    for _ in range(resets):
        time.sleep(rng.uniform(0.01, 0.1))
        if not job.runs():
            break
        broken += hosts.reset(rng.randrange(2))
    if job.runs():
        hosts.link(1, "down")
        try:
            time.sleep(3)
        finally:
            hosts.link(1, "up")
    return broken


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("bin", type=pathlib.Path)
    arguments.add_argument("--job", action="append", choices=JOBS)
    arguments.add_argument("--resets", type=int, default=5)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--tls", action="store_true")
    given = arguments.parse_args()
    given.bin = given.bin.resolve()
    if os.geteuid() or not shutil.which("ip") or not shutil.which("ss"):
        stop("network namespaces are made by root, with ip and ss")
    failures, rng = 0, random.Random(given.seed)
    with tempfile.TemporaryDirectory(prefix="troupe-links-") as at, Hosts() as hosts:
        for name in given.job or JOBS:
            folder, began = pathlib.Path(at) / name, time.monotonic()
            try:
                expected = Job(hosts, given.bin, name, folder / "undisturbed", given.tls).result()
                job = Job(hosts, given.bin, name, folder / "disturbed", given.tls)
                broken = disturb(hosts, job, given.resets, rng)
                if job.result() != expected or expected is None:
                    raise AssertionError(f"another checkpoint than the undisturbed one:\n{job.text()[-4000:]}")
                again = job.text().count("is connected to ")
                if given.resets and (broken == 0 or again == 0):
                    raise AssertionError(f"{broken} connections were reset, and {again} made again")
                print(f"links.py: {name}: ok, {broken} connections reset, {again} ends connected again ({time.monotonic() - began:.1f} s)", flush=True)
            except AssertionError as e:
                failures += 1
                print(f"links.py: {name}: FAILED: {e}", flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
