#!/usr/bin/env python3
"""Kills processes of jobs at random moments: workers, the driver, the launcher and its keeper; and stops some for a moment. However often, a job ends with the
checkpoint that an undisturbed run ends with, bit for bit, and leaves no process behind.

    kills.py BIN [--elastic] [--kills N] [--seed N] [--mean SECONDS] [--job NAME]... [--folder DIR]

BIN is the folder of the built programs. ./dev soak kills calls it so. --elastic: under troupe run --elastic, workers but the driver, once
there is a checkpoint: the job goes on in its processes, and is never started again.
"""
import argparse, hashlib, json, os, pathlib, random, shutil, signal, struct, subprocess, sys, tempfile, time

# Processes, program and its flags: about two seconds, and checkpoints as often as they can be written. A script's processes are
# its shell's: 0.
SCRIPT = str(pathlib.Path(__file__).resolve().parent / "digits.lua")
JOBS = {
    "cartpole": (4, ["cartpole", "--updates", "40", "--steps", "50", "--checkpoint-every", "2"]),
    "char_pipeline": (3, ["char_pipeline", "--steps", "60", "--width", "32", "--context", "32", "--checkpoint-every", "3", "text"]),
    "data_parallel": (4, ["data_parallel", "--epochs", "1", "--checkpoint-every", "5"]),
    "digits": (3, ["digits", "--epochs", "2", "--checkpoint-every", "10"]),
    "recommender": (7, ["recommender", "--steps", "120", "--batch", "64", "--checkpoint-every", "5"]),
    "sharded": (4, ["sharded", "--steps", "40", "--width", "32", "--mesh", "dp=2,tp=2", "--shard", "all", "--checkpoint-every", "3", "text"]),
    "script": (0, ["troupe", "repl", "-n", "3", "--checkpoint-every", "10", SCRIPT]),
}
TEXT = "".join(f"{n} times {n + 1} is {n * n + n}. " for n in range(2000))  # what char_pipeline reads
INDEX = "model.safetensors.index.json"
MARK = "TROUPE_KILLS_MARK"
PATIENCE = 120  # seconds for a job, and for what it left to end


def steps_in(folder):
    return sorted(p for p in folder.glob("step-*") if (p / INDEX).exists())


def newest(folder):
    """Step of the newest checkpoint, and {tensor: digest of type, shape and bytes}."""
    steps = steps_in(folder)
    if not steps:
        return None
    index, tensors = json.loads((steps[-1] / INDEX).read_text()), {}
    for file in index["troupe"]["files"]:
        data = (steps[-1] / file["name"]).read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        for name, entry in json.loads(data[8:8 + length]).items():
            if name != "__metadata__":
                begin, end = (8 + length + at for at in entry["data_offsets"])
                what = hashlib.sha256(f"{entry['dtype']} {entry['shape']} ".encode() + data[begin:end])
                tensors[f"{file['model']} {name}"] = what.hexdigest()[:16]
    return index["troupe"]["step"], tensors


def marked(mark):
    """Processes of a job that have its mark in their environment, but for its launcher: {pid: rank, or None for others}."""
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
            state = (process / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if f"{MARK}={mark}".encode() in variables and state not in "ZX":
            ranks = [int(v[5:]) for v in variables if v.startswith(b"RANK=")]
            found[int(process.name)] = ranks[0] if ranks else None
    return found


class Job:
    def __init__(self, programs, name, folder, elastic=False):
        self.elastic, self.before = elastic, (None, 0)  # the checkpoint at the last kill, and how often it was that
        self.programs, self.folder, (self.processes, self.command) = programs, folder, JOBS[name]
        self.checkpoints = folder / "checkpoints"
        self.mark = f"{os.getpid()}-{folder.name}-{time.monotonic_ns()}"
        folder.mkdir(parents=True)
        (folder / "text").write_text(TEXT)
        self.log = open(folder / "log", "a+")
        self.starts = 0

    def start(self):
        resume = ["--resume"] if self.starts else []
        self.starts += 1
        program, *flags = self.command
        at = 0 if self.processes else 1  # behind the verb
        flags[at:at] = ["--checkpoint", str(self.checkpoints), *resume]
        launch = [str(self.programs / "troupe"), "run", "-n", str(self.processes), *(["--elastic"] if self.elastic else ["--max-restarts", "20"])] if self.processes else []
        self.launcher = subprocess.Popen(
            [*launch, str(self.programs / program), *flags],
            cwd=self.folder, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env={**os.environ, MARK: self.mark})

    def kill_one(self, rng):
        """Who was killed; None if nobody was there."""
        there = marked(self.mark)
        there.pop(self.launcher.pid, None)
        victims = [(pid, f"w{rank}") for pid, rank in sorted(there.items()) if rank is not None]
        if self.elastic:
            victims = [(pid, who) for pid, who in victims if who != "w0"] if self.comes_further() else []
        elif not self.processes:
            victims.append((self.launcher.pid, "w0"))
        elif rng.random() < 0.1:  # seldom, since a kill of these is one of all workers
            victims = [(pid, "keeper") for pid, rank in there.items() if rank is None] or victims
            if rng.random() < 0.5:
                victims = [(self.launcher.pid, "launcher")]
        if not victims:
            return None
        pid, who = rng.choice(victims)
        try:
            if rng.random() < 0.05:  # a pause is no loss
                os.kill(pid, signal.SIGSTOP)
                time.sleep(rng.uniform(0, 1.5))
                os.kill(pid, signal.SIGCONT)
                return None
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return None
        return who

    def comes_further(self):
        """A job that loses workers ten times without a checkpoint between them ends, as it should."""
        newest_one = (steps_in(self.checkpoints) or [None])[-1]
        self.before = (newest_one, self.before[1] + 1 if newest_one == self.before[0] else 1)
        return newest_one is not None and self.before[1] <= 5

    def await_nothing_left(self):
        until = time.monotonic() + PATIENCE
        while marked(self.mark):
            if time.monotonic() > until:
                raise AssertionError(f"left behind: {marked(self.mark)}")
            time.sleep(0.005)

    def run(self, rng=None, mean=0.4, most=0):
        """To its end; who was killed. An operator starts it again where the launcher does not."""
        self.start()
        killed, until = [], time.monotonic() + PATIENCE
        while True:
            try:
                pause = PATIENCE
                if rng and len(killed) < most:
                    soon = killed and rng.random() < 0.3  # the next one while all start again
                    pause = rng.uniform(0, 0.3) if soon else rng.expovariate(1 / mean)
                code = self.launcher.wait(min(pause, max(0.01, until - time.monotonic())))
            except subprocess.TimeoutExpired:
                if time.monotonic() > until:
                    raise AssertionError("did not come to its end")
                if who := self.kill_one(rng):
                    killed.append(who)
                    until = time.monotonic() + PATIENCE
                continue
            self.await_nothing_left()
            if code == 0:
                return killed
            if not killed or self.elastic or self.starts > len(killed) + 1:
                raise AssertionError(f"ended with code {code}")
            self.start()

    def said(self):
        self.log.seek(0)
        return self.log.read()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path, metavar="BIN")
    parser.add_argument("--elastic", action="store_true")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mean", type=float, default=0.4, help="seconds between kills")
    parser.add_argument("--job", action="append", choices=sorted(JOBS), help="all unless given")
    parser.add_argument("--folder", type=pathlib.Path, help="keeps what the jobs write; else only of those that end wrong")
    args = parser.parse_args()
    base = args.folder or pathlib.Path(tempfile.mkdtemp(prefix="troupe-kills-"))
    programs, rng = args.programs.resolve(), random.Random(args.seed)
    wrong = 0
    names = args.job or sorted(name for name, (processes, _) in JOBS.items() if processes or not args.elastic)
    for name in names:
        reference = Job(programs, name, base / f"{name}-undisturbed", args.elastic)
        reference.run()
        expected = newest(reference.checkpoints)
        if not expected or not expected[1]:
            raise AssertionError(f"{name} has made no checkpoint: {reference.said()}")
        kills, jobs, who = -(-args.kills // len(names)), 0, {}
        while sum(who.values()) < kills and wrong < 5:
            job = Job(programs, name, base / f"{name}-{jobs}", args.elastic)
            jobs += 1
            failure = None
            try:
                for victim in job.run(rng, args.mean, kills - sum(who.values())):
                    who[victim] = who.get(victim, 0) + 1
                got = newest(job.checkpoints)
                if got != expected:
                    differ = [t for t in expected[1] if not got or got[1].get(t) != expected[1][t]]
                    failure = f"ends at step {got and got[0]}, expected {expected[0]}; other bits in {differ[:8] or 'tensors that are new'}"
            except AssertionError as e:
                failure = str(e)
                for pid in {job.launcher.pid, *marked(job.mark)}:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                job.launcher.wait()
            if failure:
                wrong += 1
                print(f"{name}, job {jobs}: {failure}; in {job.folder}, its last lines:")
                print("".join(f"  {line}\n" for line in job.said().splitlines()[-20:]), end="", flush=True)
            elif not args.folder:
                shutil.rmtree(job.folder)
        shown = ", ".join(f"{n} of {victim}" for victim, n in sorted(who.items()))
        print(f"{name}: {sum(who.values())} kills ({shown}) in {jobs} jobs, seed {args.seed}", flush=True)
    if not wrong and not args.folder:
        shutil.rmtree(base)
    print(f"{wrong} ended wrong" if wrong else "all ended with the bits of an undisturbed run")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
