#!/usr/bin/env python3
"""How long a job is held up when a worker is killed: from the kill to the end of the first step that is new.

    restarts.py BIN [--kills N] [--job NAME]...     jobs of tests/soak/kills.py, under troupe run --max-restarts
    restarts.py --torch [PYTHON] [--kills N]         torch_peer.py restarts, under torchrun --max-restarts

Prints one line of JSON for each job: the median in milliseconds, the 90th percentile and the longest.
"""
import argparse, importlib.util, json, os, pathlib, random, signal, struct, subprocess, sys, tempfile, time

HERE = pathlib.Path(__file__).resolve().parent
specification = importlib.util.spec_from_file_location("kills", HERE.parent / "tests/soak/kills.py")
kills = importlib.util.module_from_spec(specification)
specification.loader.exec_module(kills)
RECORD = 32  # bytes of a number in DIR/witness, which begins with its step


def last_step(witness):
    """Of the file to which a job writes the loss of each step; a new one begins with the steps that are made again."""
    try:
        data = witness.read_bytes()
    except OSError:
        return -1
    at = len(data) // RECORD * RECORD - RECORD
    return struct.unpack_from("<q", data, at)[0] if at >= 0 else -1


def held_up(progress, ranks, count, rng):
    """Seconds of each kill; progress() is the newest step, ranks() {rank: pid}."""
    times = []
    while len(times) < count:
        before = progress()
        while progress() < before + 15:
            time.sleep(0.005)
        there = ranks()
        if not there:
            return times
        step, start = progress(), time.monotonic()
        os.kill(there[rng.choice(sorted(there))], signal.SIGKILL)
        while progress() <= step + 1:
            if time.monotonic() - start > 120:
                raise AssertionError(f"no step after {step} within 120 s")
            time.sleep(0.001)
        times.append(time.monotonic() - start)
    return times


def emit(system, job, times):
    times = sorted(1e3 * t for t in times)
    print(json.dumps({"system": system, "bench": "kill_to_new_step_ms", "job": job, "value": round(times[len(times) // 2], 1), "unit": "ms",
                      "p90": round(times[len(times) * 9 // 10], 1), "most": round(times[-1], 1), "kills": len(times)}), flush=True)


def ours(programs, name, count, folder):
    endless = {"--epochs": "1000000", "--steps": "1000000"}
    processes, command = kills.JOBS[name]
    command = [endless.get(before, word) for before, word in zip(["", *command], command)]
    kills.JOBS[name] = (processes, command)
    job = kills.Job(programs, name, folder / name)
    job.start()

    def ranks():
        there = kills.marked(job.mark)
        there.pop(job.launcher.pid, None)
        return {rank: pid for pid, rank in there.items() if rank is not None}

    witness = job.checkpoints / "witness"
    times = held_up(lambda: last_step(witness), ranks, count, random.Random(1))
    job.launcher.send_signal(signal.SIGTERM)
    job.launcher.wait()
    emit("troupe", name, times)


def torch(python, count, folder):
    progress = folder / "progress"
    job = subprocess.Popen([python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", "--max-restarts", "1000000",
                            str(HERE / "torch_peer.py"), "restarts", "--folder", str(folder)], stdout=subprocess.DEVNULL)

    def newest():
        try:
            return int(progress.read_text() or -1)
        except (OSError, ValueError):
            return -1

    def ranks():
        found = {}
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                stat = (process / "stat").read_text().rsplit(")", 1)[1].split()
                variables = (process / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if int(stat[1]) == job.pid and stat[0] not in "ZX":
                found.update({int(v[5:]): int(process.name) for v in variables if v.startswith(b"RANK=")})
        return found

    times = held_up(newest, ranks, count, random.Random(1))
    job.send_signal(signal.SIGTERM)
    job.wait()
    emit("torchrun", "ddp", times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path, nargs="?", metavar="BIN")
    parser.add_argument("--torch", nargs="?", const=sys.executable, metavar="PYTHON")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--job", action="append", choices=["char_pipeline", "data_parallel", "digits", "recommender"])
    args = parser.parse_args()
    if not args.programs and not args.torch:
        parser.error("expected BIN, the folder of built programs, or --torch")
    with tempfile.TemporaryDirectory(prefix="troupe-restarts-") as folder:
        if args.torch:
            torch(args.torch, args.kills, pathlib.Path(folder))
        else:
            for name in args.job or ["char_pipeline", "data_parallel", "digits", "recommender"]:
                ours(args.programs.resolve(), name, args.kills, pathlib.Path(folder))


if __name__ == "__main__":
    main()
