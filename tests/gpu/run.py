#!/usr/bin/env python3
"""Everything that only a GPU can show, in one command: tests, training, compute-sanitizer, the benchmark beside PyTorch.

    run.py BIN [--out DIR] [--parts contract,operators,...] [--minutes 8] [--quick] [--simulated]

BIN is a folder with cuda_tests, cuda_ops_tests, cuda_train_tests, gpu_nccl, digits, troupe and bench_gpu. All of it ends within --minutes:
first a look whether the kernels are right, then the measurements, ours and PyTorch's, then all other tests. Every part has a limit
and stands for itself: one that fails or takes too long does not keep the others from running, and a part for which no time is left
is named, for a second call with --parts. DIR (gpu-results) gets results.json, a log of each part, and performance.md: ours beside
PyTorch's, its best way, and what was predicted (bench/results/gpu-predicted.json). Exit code 0 if no part failed, 1 if one did,
77 with a sentence if there is no GPU. Needs no network; PyTorch and compute-sanitizer are used where they are.

--probe only says whether there is a GPU. --quick takes the benchmark's smallest sizes; --simulated tries the script with programs of a cuda-sim build.
"""
import argparse, ctypes, glob, importlib.util, json, os, shutil, signal, subprocess, sys, time

from report import json_lines, predictions, table

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.join(HERE, "..", "..", "bench")
NO_GPU = 77
SHORTEST = 5  # seconds: no part begins with less


def gpus():
    """How many the driver has."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


def environment():
    """Adds the folders where PyTorch's packages have cuBLASLt and NCCL, in case the loader knows no other."""
    found = [os.path.dirname(f) for folder in sys.path for library in ("libcublasLt.so.*", "libnccl.so.2")
             for f in glob.glob(os.path.join(folder, "nvidia", "*", "lib", library))]
    paths = [os.environ.get("LD_LIBRARY_PATH", ""), *sorted(set(found))]
    return {"TROUPE_TEST_SOURCE": os.path.dirname(os.path.dirname(HERE)),  # what tests read may have moved with this script
            **os.environ, "LD_LIBRARY_PATH": ":".join(p for p in paths if p)}


class Run:
    def __init__(self, args):
        self.args, self.results, self.measured, self.env = args, [], [], environment()
        self.device, self.until, self.no_time = "cuda:0", time.monotonic() + 60 * args.minutes, []
        os.makedirs(args.out, exist_ok=True)

    def program(self, name, *rest):
        return [os.path.join(self.args.bin, name), *rest]

    def left(self):
        return self.until - time.monotonic()

    def command(self, name, command, limit):
        """Runs it, as long as limit (seconds) and the call allow; (what it printed, what went wrong). Both streams go to NAME.log."""
        log, limit = os.path.join(self.args.out, name + ".log"), min(limit, max(self.left(), 1))
        with open(log, "w") as to:
            try:
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=to, text=True, env=self.env,
                                           start_new_session=True)
            except OSError as e:
                return "", str(e)
            try:
                text, _ = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                text, _ = process.communicate()
                to.write(text)
                return text, f"took longer than {limit:.0f} s"
            to.write(text)
        return text, f"exit code {process.returncode}, see {log}" if process.returncode else ""

    def part(self, name, f):
        if self.args.parts and name not in self.args.parts.split(","):
            return
        if self.left() < SHORTEST:
            self.no_time.append(name)
            self.results.append({"part": name, "state": "skipped", "skipped": "no time was left"})
            return self.write()
        print(f"gpu: {name} ...", file=sys.stderr, flush=True)
        start = time.monotonic()
        outcome = f()  # {"failed": why} or {"skipped": why}, or what it has to say
        if outcome.get("failed") and self.left() <= 0:
            outcome = {**outcome, "skipped": outcome.pop("failed") + ": the call had no more time"}
            self.no_time.append(name)
        state = "failed" if outcome.get("failed") else "skipped" if outcome.get("skipped") else "passed"
        self.results.append({"part": name, "state": state, "seconds": round(time.monotonic() - start, 1), **outcome})
        print(f"gpu: {name} {state} {outcome.get(state, '')}", file=sys.stderr, flush=True)
        self.write()

    def write(self):
        with open(os.path.join(self.args.out, "results.json"), "w") as to:
            json.dump(self.results, to, indent=1)

    # ---- the parts
    def tests(self, name, *filters, limit):
        text, wrong = self.command(name, self.program(name, *filters), limit)
        return {"failed": wrong} if wrong else {"last_line": (text.strip().splitlines() or [""])[-1]}

    def trained(self, name, device, processes):
        digits = self.program("digits", "--device", device, "--epochs", "2", "--json", "--chart",
                              os.path.join(self.args.out, "digits.svg"))
        if processes > 1:
            digits = self.program("troupe", "run", "-n", str(processes), *digits)
        text, wrong = self.command(name, digits, 300)
        lines = [line for line in text.splitlines() if line.startswith("{")]
        return (None, wrong or "printed no result") if wrong or not lines else (json.loads(lines[-1]), "")

    def trajectory(self, name, processes):
        """The same training on the CPU and on the GPU. Sums are in another order, so the last digits differ."""
        wanted, wrong = self.trained(name + "_cpu", "cpu", processes)
        got, wrong_here = (None, "") if wrong else self.trained(name, self.device, processes)
        if wrong or wrong_here:
            return {"failed": wrong or wrong_here}
        said = {"cpu": wanted, "gpu": got}
        loss, accuracy = (abs(got[k] - wanted[k]) for k in ("final_loss", "test_accuracy"))
        if loss > 0.02 + 0.05 * abs(wanted["final_loss"]) or accuracy > 0.005:
            return {"failed": f"loss differs by {loss:g}, accuracy by {accuracy:g}", **said}
        return said

    def sanitizer(self, tool, filters):
        found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
        if not found:
            return {"skipped": "no compute-sanitizer here"}
        _, wrong = self.command(tool, [found, "--tool", tool, "--error-exitcode", "9", *self.program("cuda_ops_tests", filters)], 300)
        return {"failed": wrong} if wrong else {}

    def nccl(self):
        """Two ranks on one GPU, by different host ids: what is right, and what NCCL does (facts for docs/howto/use-gpus.md)."""
        if self.args.simulated:
            return {"skipped": "simulated ranks are in one process"}
        said, wrong = {}, []
        for part in ("library", "one", "two", "turns", "opposite", "killed", "blocking", "cost"):
            text, failed = self.command("nccl_" + part, self.program("gpu_nccl", part), 130 if part == "turns" else 90)
            said[part] = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
            if failed.startswith("exit code 77,"):
                return {"skipped": "no NCCL here: " + failed, **said}
            if failed:
                wrong.append(f"{part}: {failed}")
        return {"failed": "; ".join(wrong), **said} if wrong else said

    def ours(self):
        text, wrong = self.command("ours", self.program("bench_gpu", "--device", self.device, *self.quick()), 150)
        self.measured = json_lines(text)
        self.tell()
        return {"failed": wrong, "lines": self.measured} if wrong else {"lines": self.measured}

    def torch(self):
        """PyTorch as it is, then other ways of it, which may not all find time."""
        if not importlib.util.find_spec("torch"):
            return {"skipped": "no PyTorch here"}
        # One way takes a minute at most: the last begins that long before the end.
        seconds = max(min(160, self.left() - 60), 0)
        text, wrong = self.command("torch", [sys.executable, os.path.join(BENCH, "torch_gpu.py"), "--seconds", str(seconds), *self.quick()], 220)
        lines = json_lines(text)
        self.tell(lines)
        return {"failed": wrong, "lines": lines} if wrong and not lines else {"lines": lines, "note": wrong}

    def quick(self):
        return ["--quick"] if self.args.quick else []

    def tell(self, theirs=()):
        text = table(self.measured, theirs, predictions(os.path.join(BENCH, "results", "gpu-predicted.json")))
        with open(os.path.join(self.args.out, "performance.md"), "w") as to:
            to.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("--out", default="gpu-results")
    parser.add_argument("--parts", default="")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--simulated", action="store_true")
    parser.add_argument("--probe", action="store_true")
    args = parser.parse_args()
    if not args.simulated and gpus() == 0:
        print("gpu: there is no GPU here that a driver knows, so nothing was run", file=sys.stderr)
        return NO_GPU
    if args.probe:
        return 0
    run = Run(args)
    run.part("kernels", lambda: run.tests("cuda_ops_tests", "attention over*,products*,so it does in float32", limit=60))
    run.part("ours", run.ours)
    run.part("torch", run.torch)
    run.part("contract", lambda: run.tests("cuda_tests", limit=100))
    run.part("operators", lambda: run.tests("cuda_ops_tests", limit=300))
    run.part("training", lambda: run.tests("cuda_train_tests", limit=300))
    run.part("trajectory", lambda: run.trajectory("trajectory", 1))
    run.part("trajectory_over_calls", lambda: run.trajectory("trajectory_over_calls", 3))
    run.part("memcheck", lambda: run.sanitizer("memcheck", "so it does in float32,products*,attention over*,gradients of slices*"))
    run.part("racecheck", lambda: run.sanitizer("racecheck", "attention over*,gradients of slices*,long lines*"))
    run.part("nccl", run.nccl)
    if run.no_time:
        print(f"gpu: {args.minutes:g} minutes are over; these had no time: --parts {','.join(run.no_time)}", file=sys.stderr)
    return 1 if any(r["state"] == "failed" for r in run.results) else 0


if __name__ == "__main__":
    sys.exit(main())
