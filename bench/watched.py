#!/usr/bin/env python3
"""What it costs a job to be watched: the processor's time of its processes per step, with watchers and without, in turns.

    watched.py [BIN] [--rounds N] [--seconds X] [--watchers N]

BIN, the folder of built programs. The job is data_parallel as three processes; a watcher is `troupe top --json --seconds 0.1`, ten looks a
second at all workers. Prints one line of JSON: microseconds per step, medians over the rounds, and the median of the rounds' ratios.
"""
import argparse, json, os, pathlib, signal, statistics, subprocess, sys, tempfile, time

TICK = os.sysconf("SC_CLK_TCK")


def processor_time(pids):
    """Seconds of all threads, as the system counts them."""
    sum_ = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        sum_ += int(fields[11]) + int(fields[12])
    return sum_ / TICK


def report(troupe, job):
    said = subprocess.run([troupe, "ps", "--json", *filter(None, [job])], stdout=subprocess.PIPE, text=True)
    return json.loads(said.stdout.splitlines()[0]) if said.returncode == 0 else None


def per_step(troupe, job, seconds):
    """Processor's time of a step, over some seconds."""
    first = report(troupe, job)
    pids = [w["pid"] for w in first["workers"]]
    before = processor_time(pids)
    time.sleep(seconds)
    last = report(troupe, job)
    return (processor_time(pids) - before) / (last["workers"][0]["steps"] - first["workers"][0]["steps"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", nargs="?", default="build/release/bin")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--watchers", type=int, default=3)
    args = parser.parse_args()
    troupe = os.path.abspath(os.path.join(args.bin, "troupe"))
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.Popen([troupe, "run", "-n", "3", os.path.abspath(os.path.join(args.bin, "data_parallel")), "--epochs", "1000000"],
                               cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not (there := report(troupe, "")) or there["workers"][0]["steps"] < 100:
                if run.poll() is not None:
                    sys.exit(f"watched: the job has ended with {run.returncode}")
                time.sleep(0.2)
            job, alone, watched = there["job"], [], []
            for turn in range(args.rounds):
                for with_watchers in (False, True)[:: -1 if turn % 2 else 1]:
                    watchers = [subprocess.Popen([troupe, "top", "--json", "--seconds", "0.1", job], stdout=subprocess.DEVNULL)
                                for _ in range(args.watchers * with_watchers)]
                    (watched if with_watchers else alone).append(1e6 * per_step(troupe, job, args.seconds))
                    for w in watchers:
                        w.send_signal(signal.SIGKILL)
                        w.wait()
                print(f"watched: turn {turn + 1} of {args.rounds}: {watched[-1]:.0f} us with, {alone[-1]:.0f} us without", file=sys.stderr, flush=True)
        finally:
            run.send_signal(signal.SIGINT)
            run.wait()
    print(json.dumps({"system": "troupe", "bench": "cpu_per_step_us", "alone": round_to(alone), "watched": round_to(watched),
                      "ratio": round(statistics.median(w / a for w, a in zip(watched, alone)), 4), "watchers": args.watchers, "rounds": args.rounds}))


def round_to(values):
    return round(statistics.median(values), 1)


if __name__ == "__main__":
    main()
