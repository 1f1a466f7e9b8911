#!/usr/bin/env python3
"""Reads a large file of tokens once, by a feed without readers, with 1, with 3, and with readers and whole jobs killed: the same
rows in the same order, in memory that does not grow.

    feed.py BIN [--gib N] [--folder DIR] [--seed N] [--limit MIB]

BIN is the folder of the built programs. A line of JSON for each run: rows a second, the share of the time that steps waited, a hash of
all ids in their order, and how far the memory of any process grew that is no file's, its own and what it shares (RssAnon, RssShmem),
from a second after its start on.
"""
import argparse, contextlib, json, os, pathlib, random, signal, subprocess, sys, tempfile, threading, time

BLOCK = 1 << 24


def make_tokens(path, gib):
    """No two blocks are equal: each is turned by another number of bytes."""
    block = os.urandom(BLOCK)
    with open(path, "wb") as file:
        for i in range(int(gib * (1 << 30)) // BLOCK):
            at = 2 * (i * 7919 % (BLOCK // 2))
            file.write(block[at:] + block[:at])


class Run:
    """A job, and what its processes say and hold."""

    def __init__(self, bin, file, workers, readers, checkpoints=None):
        environment = dict(os.environ, FILES=str(file), READERS=",".join(readers), **({"CHECKPOINTS": str(checkpoints)} if checkpoints else {}))
        self.process = subprocess.Popen([f"{bin}/troupe", "run", "-n", str(workers), "--keep-going", f"{bin}/feed_job"], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True)
        self.left = workers
        self.pids, self.memory, self.steps, self.end, self.errors = {}, {}, 0, "", ""
        self.threads = [threading.Thread(target=f, daemon=True) for f in (self.hear, self.hear_errors, self.weigh)]
        for thread in self.threads:
            thread.start()

    def hear(self):
        for line in self.process.stdout:
            words = line.split()
            if not words:
                continue
            if words[0] == "pid":
                self.pids[words[1]] = int(words[2])
            elif words[0] == "step":
                self.steps = int(words[1]) + 1
            elif words[0] == "rows":
                self.end = line

    def hear_errors(self):
        for line in self.process.stderr:
            self.errors += line

    def weigh(self):
        begin = {}
        while self.process.poll() is None:
            for worker, pid in list(self.pids.items()):
                try:
                    status = pathlib.Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                if "RssShmem:" not in status:
                    continue
                kib = sum(int(status.split(f"{name}:")[1].split()[0]) for name in ("RssAnon", "RssShmem"))
                if time.monotonic() - begin.setdefault(pid, time.monotonic()) >= 1:
                    least, most = self.memory.get(worker, (kib, kib))
                    self.memory[worker] = min(least, kib), max(most, kib)
            time.sleep(0.05)

    def await_step(self, step):
        while (self.steps < step or len(self.pids) < self.left) and self.process.poll() is None:
            time.sleep(0.01)
        return self.process.poll() is None

    def kill(self, worker):
        self.left -= 1
        with contextlib.suppress(ProcessLookupError):  # a job that failed has ended it
            os.kill(self.pids.pop(worker), signal.SIGKILL)

    def kill_all(self):
        for pid in [self.process.pid, *self.pids.values()]:
            with contextlib.suppress(ProcessLookupError):  # those of a launcher end with it
                os.kill(pid, signal.SIGKILL)
        self.ended()

    def ended(self):
        code = self.process.wait()
        for thread in self.threads:
            thread.join()
        return code

    def grown(self):
        return max((most - least) / 1024 for least, most in self.memory.values()) if self.memory else 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin"), parser.add_argument("--gib", type=float, default=10), parser.add_argument("--folder")
    parser.add_argument("--seed", type=int, default=1), parser.add_argument("--limit", type=float, default=64)
    args = parser.parse_args()
    draw, wrong = random.Random(args.seed), []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        file = pathlib.Path(folder) / "tokens.bin"
        make_tokens(file, args.gib)
        steps = file.stat().st_size // 2 // 1024 // 32 // 1000
        whole = None

        def finish(name, runs, start):
            nonlocal whole
            last, code = runs[-1], runs[-1].ended()
            if code or not last.end:
                sys.exit(f"feed: {name} ended with {code}:\n{last.errors}")
            _, rows, _, hash, _, waited, _ = last.end.split()
            seconds, grown = time.monotonic() - start, max(r.grown() for r in runs)
            whole = whole or (rows, hash)
            if (rows, hash) != whole:
                wrong.append(f"{name}: other rows than without readers")
            if grown > args.limit:
                wrong.append(f"{name}: memory grew by {grown:.0f} MiB")
            print(json.dumps({"bench": "feed_soak", "run": name, "gib": args.gib, "rows": int(rows), "hash": hash, "rows_per_s": round(int(rows) / seconds),
                              "waited_of_last_run_s": float(waited), "seconds": round(seconds, 1), "memory_grows_mib": round(grown, 1),
                              "memory_most_mib": round(max([most for r in runs for _, most in r.memory.values()], default=0) / 1024, 1), "jobs": len(runs)}), flush=True)

        for count in (0, 1, 3):
            start, readers = time.monotonic(), [f"w{i + 1}" for i in range(count)]
            finish(f"{count} readers", [Run(args.bin, file, count + 1, readers)], start)
        start, runs, done = time.monotonic(), [], 0
        checkpoints = pathlib.Path(folder) / "run"
        for job, count in enumerate((3, 1, 3, 2)):  # the last one ends by itself
            readers = [f"w{i + 1}" for i in range(count)]
            run = Run(args.bin, file, count + 1, readers, checkpoints)
            runs.append(run)
            for lost in draw.sample(readers, draw.randint(1, count) if job else 2):
                done += max(1, steps // 12)
                if run.await_step(done + draw.randint(0, max(1, steps // 30))):
                    run.kill(lost)
            done = run.steps
            if job < 3:
                run.await_step(done + max(1, steps // 12))
                run.kill_all()
        finish("readers and jobs killed", runs, start)
    sys.exit("feed: " + "; ".join(wrong) if wrong else 0)


main()
