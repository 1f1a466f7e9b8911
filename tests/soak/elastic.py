#!/usr/bin/env python3
"""Elastic jobs whose workers are killed, stopped for a moment and asked to leave, inside of steps and between them, at random.
Each ends with the losses and the final state of a job that nobody disturbed, bit for bit, and leaves no process behind. Replicas
divide nothing, or by turns the state, gradients and parameters, with spare pieces, or are pipelines; these have a folder of checkpoints,
to which they go back when two neighbours, or both replicas of a stage, are lost at once.

    elastic.py BIN [--schedules N] [--seed N] [--points N]

--points: a worker dies as it sends for the n-th time instead, for every n of four steps, each worker and shard; or for N of
these, at random.

BIN is the folder of the built programs. ./dev soak elastic calls it so. A schedule that fails is named by its seed: --seed SEED
--schedules 1 makes it again, as far as moments can be.
"""
import argparse, os, pathlib, random, signal, subprocess, sys, tempfile, threading, time

STEPS = 20
PATIENCE = 120  # seconds for a job
SHARDS = ["none", "state", "gradients", "all", "mesh", "second"]  # "mesh": pipelines, two replicas of two stages; "second": two optimizers


def numbers(output):
    return [line for line in output.splitlines() if line.startswith(("step ", "final "))]


def flags_of(shard, spares=0):
    return ["-n", "5" if shard == "mesh" else "4", "--elastic", *(["--spares", str(spares)] if spares else [])]


def last_rank(shard):
    return 4 if shard == "mesh" else 3


class Run:
    def __init__(self, programs, flags, plan, shard="none", folder=None, more={}):
        variables = {**os.environ, "PLAN": plan, "STEPS": str(STEPS), "SHARD": "none" if shard == "second" else shard, "SECOND": str(int(shard == "second")), "MESH": str(int(shard == "mesh")), **({"CHECKPOINTS": folder} if folder else {}), **more}
        self.process = subprocess.Popen([str(programs / "troupe"), "run", *flags, str(programs / "elastic_job")], env=variables,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.lines, self.errors = [], []
        self.threads = [threading.Thread(target=self.read, args=a) for a in ((self.process.stdout, self.lines), (self.process.stderr, self.errors))]
        for thread in self.threads:
            thread.start()

    @staticmethod
    def read(pipe, to):
        for line in pipe:
            to.append(line.rstrip("\n"))

    def workers(self):
        """{name: pid} of those with replicas, as they have said."""
        said = (line.split("pid ", 1)[1].split() for line in list(self.lines) if "pid w" in line)
        return {name: int(pid) for name, pid in said if pathlib.Path(f"/proc/{pid}").exists()}

    def ends(self):
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            return None
        finally:
            for thread in self.threads:
                thread.join(10)


def disturb(run, rng):
    """From outside, from the first step until the job ends: what is lost before it has no attempt around it."""
    while run.process.poll() is None and not any(line.startswith("step ") for line in list(run.lines)):
        time.sleep(0.001)
    while run.process.poll() is None:
        time.sleep(rng.expovariate(1 / 0.15))
        there = run.workers()
        if not there or run.process.poll() is not None:
            continue
        pid = there[rng.choice(sorted(there))]
        what = rng.choice(["kill", "kill", "stop", "leave"])
        try:
            if what == "stop":
                os.kill(pid, signal.SIGSTOP)
                time.sleep(rng.uniform(0.01, 0.3))
                os.kill(pid, signal.SIGCONT)
            else:
                os.kill(pid, signal.SIGKILL if what == "kill" else signal.SIGTERM)
        except ProcessLookupError:
            pass


def schedule(programs, seed, shard, expected):
    if shard in ("none", "second"):
        return schedule_in(programs, seed, shard, expected, None)
    with tempfile.TemporaryDirectory() as folder:
        return schedule_in(programs, seed, shard, expected, folder)


def schedule_in(programs, seed, shard, expected, folder):
    rng = random.Random(seed)
    flags = flags_of(shard, rng.randrange(2))
    within = [f"{rng.randrange(STEPS)}:w{rng.randrange(1, 7)}:{rng.choice(['forward', 'backward', 'prepare', 'commit'])}" for _ in range(rng.randrange(4))]
    run = Run(programs, flags, ";".join(within), shard, folder)
    if rng.random() < 0.7:
        disturb(run, rng)
    code = run.ends()
    wrong = None
    came = numbers("\n".join(run.lines))
    back = any("and only they had" in line or "begins again" in line for line in run.errors)
    if back:  # some steps twice, with the same bits
        came = list(dict.fromkeys(came))
    everybody = any("all workers with replicas are lost" in line for line in run.errors)
    if code is None:
        wrong = f"it did not end within {PATIENCE} s"
    elif code in (4, 137) and everybody:
        return "all"  # nobody was left to go on from
    elif code != 0 and came == expected[:-1]:
        return "behind"  # a worker was lost when the loop was over, and the program asked it for its state
    elif code != 0:
        wrong = f"exit code {code}"
    elif came != expected:
        wrong = "other numbers than those of a job that nobody disturbed"
    if wrong:
        print("\n".join([*run.lines, *run.errors]), file=sys.stderr)
        sys.exit(f"elastic: seed {seed}: {wrong}; {' '.join(flags)}, SHARD={shard} PLAN={';'.join(within)}")
    if back:
        return "back"
    return "lost" if any(" is lost" in e or " leaves" in e for e in run.errors) else "quiet"


def point(programs, shard, rank, number, expected, folder):
    """A worker dies as it sends that often. Whether it did."""
    run = Run(programs, flags_of(shard), "", shard, folder, {"DIES": f"{rank}:{number}", "STEPS": "4"})
    code = run.ends()
    came = list(dict.fromkeys(numbers("\n".join(run.lines))))
    died = any("killed by signal 9" in line for line in run.errors)
    if came == expected and code == 0 or died and code not in (0, None) and came == expected[:-1]:  # behind the loop
        return died
    print("\n".join([*run.lines, *run.errors]), file=sys.stderr)
    sys.exit(f"elastic: exit code {code}, or other numbers; SHARD={shard} DIES={rank}:{number} STEPS=4")


def points(programs, most, seed):
    start, died, quiet = time.monotonic(), 0, 0
    expected = {}
    for shard in SHARDS:
        run = Run(programs, flags_of(shard), "", shard, None, {"STEPS": "4"})
        if run.ends() != 0:
            sys.exit("elastic: the undisturbed job failed:\n" + "\n".join(run.errors))
        expected[shard] = numbers("\n".join(run.lines))

    def one(shard, rank, number):
        nonlocal died, quiet
        with tempfile.TemporaryDirectory() as folder:
            dies = point(programs, shard, rank, number, expected[shard], folder)
        died, quiet = died + dies, quiet + (not dies)
        if (died + quiet) % 50 == 0:
            print(f"elastic: {died + quiet} points, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        return dies

    if most:
        rng = random.Random(seed)
        for _ in range(most):
            shard = rng.choice(SHARDS)
            one(shard, rng.randrange(1, last_rank(shard) + 1), rng.randrange(1, 80))
    for shard in SHARDS if not most else []:
        for rank in range(1, last_rank(shard) + 1):
            number, ended = 1, 0
            while ended < 5:  # how often it sends is not the same in every run
                ended = 0 if one(shard, rank, number) else ended + 1
                number += 1
    if died < (most or 100) // 4:
        sys.exit(f"elastic: only {died} of {died + quiet} points lost a worker: nothing was tried")
    print(f"elastic: a worker died at {died} points of four steps, the same bits in all, in {time.monotonic() - start:.0f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path, metavar="BIN")
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--points", type=int, nargs="?", const=0, metavar="N")
    args = parser.parse_args()
    programs = args.programs.resolve()
    if args.points is not None:
        return points(programs, args.points, args.seed)
    expected, start, came = {}, time.monotonic(), {}
    for shard in SHARDS:
        quiet = Run(programs, flags_of(shard), "", shard)
        if quiet.ends() != 0:
            sys.exit("elastic: the undisturbed job failed:\n" + "\n".join(quiet.errors))
        expected[shard] = numbers("\n".join(quiet.lines))
    for i in range(args.schedules):
        shard = SHARDS[(args.seed + i) % len(SHARDS)]
        how = schedule(programs, args.seed + i, shard, expected[shard])
        came[how] = came.get(how, 0) + 1
        if sys.stderr.isatty() or (i + 1) % 50 == 0:
            print(f"elastic: {i + 1} of {args.schedules} schedules, {time.monotonic() - start:.0f} s", end="\r" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)
    if args.schedules >= 20 and came.get("lost", 0) + came.get("back", 0) < args.schedules // 3:
        sys.exit(f"elastic: only {came.get('lost', 0) + came.get('back', 0)} of {args.schedules} schedules lost a worker: nothing was tried")
    print(f"elastic: {args.schedules} schedules, the same bits in all: {came.get('lost', 0)} lost workers, {came.get('back', 0)} went back to a checkpoint, {came.get('all', 0)} all of them at once "
          f"(and ended so), {came.get('behind', 0)} one behind the loop, in {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
