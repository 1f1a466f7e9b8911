#!/usr/bin/env python3
"""How long a job is held up when a worker is killed: from the kill to the end of the first step that is new.

    restarts.py [BIN] [--kills N] [--job NAME]... [--mib N]... [--torch PYTHON] [--torchft PYTHON]

BIN, the folder of built programs: jobs of tests/soak/kills.py, under troupe run --max-restarts; and replicas with --mib of
state each, under troupe run --elastic: with a spare, with a worker that is started anew, with fewer, with a spare for replicas
that divide gradients and state, and back to a checkpoint of every fifth step in the same processes. --torch: torch_peer.py
restarts, under torchrun --max-restarts, of PyTorch 2.4 or newer. --torchft: torchft_peer.py, three replicas with --mib of state,
of which a process that was killed is started anew at once.

Prints one line of JSON for each job: the median in milliseconds, the 90th percentile and the longest; and each kill on
standard error.
"""
import argparse, importlib.util, json, os, pathlib, random, signal, socket, statistics, struct, subprocess, sys, tempfile, time

HERE = pathlib.Path(__file__).resolve().parent
specification = importlib.util.spec_from_file_location("kills", HERE.parent / "tests/soak/kills.py")
kills = importlib.util.module_from_spec(specification)
specification.loader.exec_module(kills)
JOBS = ("char_pipeline", "data_parallel", "digits", "recommender")
RECORD = 32  # bytes of a number in DIR/witness, which begins with its step


def last_step(witness):
    """Of the file to which a job writes the loss of each step; a new one begins with the steps that are made again."""
    try:
        data = witness.read_bytes()
    except OSError:
        return -1
    at = len(data) // RECORD * RECORD - RECORD
    return struct.unpack_from("<q", data, at)[0] if at >= 0 else -1


def held_up(job, progress, ranks, count, rng):
    """The seconds of each kill, which standard error has too; progress() is the newest step, ranks() {rank: pid}."""
    def await_step(step, pause):
        start = time.monotonic()
        while progress() < step:
            if time.monotonic() - start > 300:
                sys.exit(f"restarts: {job}: no step {step} within 300 s; the last one is {progress()}")
            time.sleep(pause)

    times = []
    while len(times) < count:
        await_step(progress() + 15, 0.005)
        there = ranks()
        if not there:
            sys.exit(f"restarts: {job} has no process left")
        step, start = progress(), time.monotonic()
        os.kill(there[rng.choice(sorted(there))], signal.SIGKILL)
        await_step(step + 2, 0.001)
        times.append(time.monotonic() - start)
        print(f"restarts: {job}, kill {len(times)} of {count}: {1e3 * times[-1]:.0f} ms", file=sys.stderr, flush=True)
    return times


def ranks_below(job, argument=""):
    """{rank: pid} of the processes that a launcher has started, with that among their arguments."""
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            stat = (process / "stat").read_text().rsplit(")", 1)[1].split()
            variables = (process / "environ").read_bytes().split(b"\0")
            arguments = (process / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if int(stat[1]) == job.pid and stat[0] not in "ZX" and argument in arguments:
            found.update({int(v[5:]): int(process.name) for v in variables if v.startswith(b"RANK=")})
    return found


def emit(system, job, times):
    times = sorted(1e3 * t for t in times)
    print(json.dumps({"system": system, "bench": "kill_to_new_step_ms", "job": job, "value": round(statistics.median(times), 1), "unit": "ms",
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
    try:
        times = held_up(name, lambda: last_step(witness), ranks, count, random.Random(1))
    finally:
        job.launcher.send_signal(signal.SIGTERM)
        job.launcher.wait()
    emit("troupe", name, times)


SPARE = ["--elastic", "--spares", "1"]
ELASTIC = {"spare": (SPARE, "none"), "anew": (["--elastic"], "none"), "fewer": (["--elastic=2:4"], "none"),
           "pieces": (SPARE, "gradients"), "checkpoint": (SPARE, "checkpoint")}


def elastic(programs, how, mib, count, folder):
    """Three replicas beside the driver, which lose one that has come; the driver is not killed."""
    progress, log = folder / "progress", open(folder / "log", "w")
    flags, way = ELASTIC[how]
    command = [programs / "troupe", "run", "-n", "4", *flags, programs / "bench_elastic", str(mib), "1000000", progress, way]
    job = subprocess.Popen([*map(str, command)], stdout=log, stderr=log)

    def newest():
        try:
            return int(progress.read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return -1

    def ranks():
        found = ranks_below(job, str(progress))
        newest_spare = max(found, default=0) if flags is SPARE else None
        return {rank: pid for rank, pid in found.items() if rank not in (0, newest_spare)}

    try:
        times = held_up(f"elastic, {how}, {mib:g} MiB", newest, ranks, count, random.Random(1))
    except SystemExit:
        print((folder / "log").read_text()[-4000:], file=sys.stderr)
        raise
    finally:
        job.send_signal(signal.SIGTERM)
        job.wait()
    emit("troupe --elastic", f"{mib:g} MiB, {how}", times)


def torch(python, count, folder):
    version = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    progress = folder / "progress"
    with open(folder / "log", "w") as log:
        job = subprocess.Popen([python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", "--max-restarts", "1000000",
                                str(HERE / "torch_peer.py"), "restarts", "--folder", str(folder)], stdout=log, stderr=log)

    def newest():
        try:
            return int(progress.read_text() or -1)
        except (OSError, ValueError):
            return -1

    try:
        times = held_up("torchrun", newest, lambda: ranks_below(job), count, random.Random(1))
    except SystemExit:
        print((folder / "log").read_text()[-4000:], file=sys.stderr)
        raise
    finally:
        job.send_signal(signal.SIGTERM)
        job.wait()
    emit("torch " + version, "torchrun", times)


def torchft(python, mib, count, folder):
    progress, log = folder / "progress", open(folder / "log", "w")
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    lighthouse = subprocess.Popen([str(pathlib.Path(python).parent / "torchft_lighthouse"), "--min_replicas", "2", "--bind", f"[::]:{port}",
                                   "--join_timeout_ms", "10000"], stdout=log, stderr=log)
    replicas = {}

    def newest():
        for r in range(3):
            if r not in replicas or replicas[r].poll() is not None:
                replicas[r] = subprocess.Popen([python, str(HERE / "torchft_peer.py"), str(r), str(mib), str(progress), f"http://localhost:{port}"],
                                               stdout=log, stderr=log)
        try:
            return int(progress.read_text() or -1)
        except (OSError, ValueError):
            return -1

    try:
        times = held_up(f"torchft, {mib:g} MiB", newest, lambda: {r: replicas[r].pid for r in (1, 2)}, count, random.Random(1))
    except SystemExit:
        print((folder / "log").read_text()[-4000:], file=sys.stderr)
        raise
    finally:
        for process in [*replicas.values(), lighthouse]:
            process.kill()
            process.wait()
    version = subprocess.run([python, "-c", "import importlib.metadata as m; print(m.version('torchft'), 'torch', m.version('torch'))"],
                             stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    emit("torchft " + version, f"{mib:g} MiB, torchft", times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path, nargs="?", metavar="BIN")
    parser.add_argument("--torch", metavar="PYTHON")
    parser.add_argument("--torchft", metavar="PYTHON")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--job", action="append", choices=(*JOBS, "elastic"))
    parser.add_argument("--mib", action="append", type=float)
    args = parser.parse_args()
    if not args.programs and not args.torch and not args.torchft:
        parser.error("expected BIN, the folder of built programs, --torch or --torchft")
    with tempfile.TemporaryDirectory(prefix="troupe-restarts-") as folder:
        for mib in (args.mib or [36]) if args.programs and "elastic" in (args.job or ["elastic"]) else []:
            for how in ELASTIC:
                within = pathlib.Path(folder) / f"{how}-{mib:g}"
                within.mkdir()
                elastic(args.programs.resolve(), how, mib, args.kills, within)
        for name in [j for j in args.job or JOBS if j != "elastic"] if args.programs else []:
            ours(args.programs.resolve(), name, args.kills, pathlib.Path(folder))
        for mib in (args.mib or [36]) if args.torchft else []:
            within = pathlib.Path(folder) / f"torchft-{mib:g}"
            within.mkdir()
            torchft(args.torchft, mib, args.kills, within)
        if args.torch:
            torch(args.torch, args.kills, pathlib.Path(folder))


if __name__ == "__main__":
    main()
