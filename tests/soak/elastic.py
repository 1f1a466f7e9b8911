#!/usr/bin/env python3
"""Elastic jobs whose workers are killed, stopped for a moment and asked to leave, inside of steps and between them, at random.
Each ends with the losses and the final state of a job that nobody disturbed, bit for bit, and leaves no process behind. Replicas
divide nothing, or by turns the state, gradients and parameters, with spare pieces; these have a folder of checkpoints, to which they
go back when two neighbours are lost at once.

    elastic.py BIN [--schedules N] [--seed N]

BIN is the folder of the built programs. ./dev soak elastic calls it so. A schedule that fails is named by its seed: --seed SEED
--schedules 1 makes it again, as far as moments can be.
"""
import argparse, os, pathlib, random, signal, subprocess, sys, tempfile, threading, time

STEPS = 20
PATIENCE = 120  # seconds for a job
SHARDS = ["none", "state", "gradients", "all"]


def numbers(output):
    return [line for line in output.splitlines() if line.startswith(("step ", "final "))]


class Run:
    def __init__(self, programs, flags, plan, shard="none", folder=None):
        variables = dict(os.environ, PLAN=plan, STEPS=str(STEPS), SHARD=shard, **({"CHECKPOINTS": folder} if folder else {}))
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
    if shard == "none":
        return schedule_in(programs, seed, shard, expected, None)
    with tempfile.TemporaryDirectory() as folder:
        return schedule_in(programs, seed, shard, expected, folder)


def schedule_in(programs, seed, shard, expected, folder):
    rng = random.Random(seed)
    flags = ["-n", "4", "--elastic", "--spares", str(rng.randrange(2))]
    within = [f"{rng.randrange(STEPS)}:w{rng.randrange(1, 7)}:{rng.choice(['forward', 'backward', 'prepare', 'commit'])}" for _ in range(rng.randrange(4))]
    run = Run(programs, flags, ";".join(within), shard, folder)
    if rng.random() < 0.7:
        disturb(run, rng)
    code = run.ends()
    wrong = None
    came = numbers("\n".join(run.lines))
    back = any("go at once, and only they had" in line or "begins again" in line for line in run.errors)
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path, metavar="BIN")
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    programs = args.programs.resolve()
    expected, start, came = {}, time.monotonic(), {}
    for shard in SHARDS:
        quiet = Run(programs, ["-n", "4", "--elastic"], "", shard)
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
