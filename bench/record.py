#!/usr/bin/env python3
"""Measures entries of bench/results/ again, and writes them with today's machine, date and commit.

    record.py BIN_DIR PEER NAME...     NAME: axes, calls, calls-tcp, chain, collectives, contexts, ddp, nanogpt, references, restarts, scale, sharded, shell, tls, watched

Title, notes, and the command of a comparison are those of the file. bench/figures.py then writes the page.
"""
import datetime, json, os, pathlib, re, statistics, subprocess, sys

import tls as encrypted
from programs import command, lines

ROOT = pathlib.Path(__file__).resolve().parent.parent
NUMBERS = {1: "one", 2: "two", 4: "four", 8: "eight", 16: "sixteen"}


def text_of(*run):
    done = subprocess.run([str(r) for r in run], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    if done.returncode:
        sys.exit(f"record: {' '.join(map(str, run))} failed")
    return done.stdout


def machine(bin_dir):
    processor = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        processor[key.strip()] = value.strip()
    level = re.search(r"cpu level: (\S+)", text_of(bin_dir / "troupe", "--version"))[1]
    cores = os.cpu_count()
    return (f"{processor['model name']} (family {processor['cpu family']} model {processor['model']}), {NUMBERS.get(cores, cores)} "
            f"virtual cores, level {level}")


def rows_of(markdown):
    """The tables of a text: lists of rows, the head first."""
    tables, rows = [], []
    for line in markdown.splitlines() + [""]:
        if line.startswith("|"):
            if not re.fullmatch(r"[|\s:-]+", line):
                rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
        elif rows:
            tables.append(rows)
            rows = []
    return tables


def printed(bin_dir, what, *flags):
    found = lines(command(str(bin_dir), what, *flags))
    return found if found is not None else sys.exit(f"record: bench_{what} failed")


def short(x):
    return f"{x:,.0f}" if x >= 1000 else f"{x:.3g}"


def compared(bin_dir, peer, entry):
    flags = entry["command"].removeprefix("./dev bench compare").split()
    (head, *rows), = rows_of(text_of(sys.executable, ROOT / "bench/compare.py", bin_dir, peer, "--markdown", *flags))
    return [{"columns": head[:5], "rows": [row[:5] for row in rows]}]


def chain(bin_dir, peer, entry):
    ways = [[f"{line['bytes']:,.0f}", short(line["value"]), short(line["through_caller_us"])] for line in printed(bin_dir, "chain")]
    return [*compared(bin_dir, peer, entry), {"columns": ["bytes of a result", "us, straight", "us, each kept in a variable"], "rows": ways}]


def contexts(bin_dir, peer, entry):
    rounds = {}
    for _ in range(7):  # a round has one of two speeds: both sides poll, or they sleep
        for line in printed(bin_dir, "contexts"):
            if line["bench"] == "context_step_us":
                rounds.setdefault(line["live"], []).append(line["value"])
    spread = [f"{short(statistics.median(us))} ({short(min(us))}..{short(max(us))})" for us in rounds.values()]
    return [{"columns": ["other contexts", *(f"{live:,.0f}" for live in rounds)], "rows": [["us a step", *spread]]}]


def references(bin_dir, peer, entry):
    found = printed(bin_dir, "refs")
    value = {(line["bench"], line.get("live")): line["value"] for line in found}
    what = ("create", "copy", "pass", "drop", "fetch")
    live = sorted({n for bench, n in value if bench == "refs_create_us"})
    times = {"columns": ["live references", *what],
             "rows": [[f"{n:,.0f}", *(short(value[f"refs_{w}_us", n]) for w in what)] for n in live]}
    memory = [(text, next((v for (bench, _), v in value.items() if bench == name), None))
              for text, name in (("on the holder", "refs_holder_bytes"), ("on the owner, the value (an integer) included", "refs_owner_bytes"))]
    return [times, {"columns": ["memory of one, of a million", "bytes"], "rows": [[t, f"{v:.0f}"] for t, v in memory if v is not None]}]


def restarts(bin_dir, peer, entry):
    kills = entry["command"].split()[-1]
    restarts = [sys.executable, str(ROOT / "bench/restarts.py"), "--kills", kills]
    found = lines([*restarts, str(bin_dir)])
    if found is None:
        sys.exit("record: restarts failed")
    for python in os.environ.get("TROUPE_PEER_PYTHON", "/usr/bin/python3").split(":"):
        peers = lines([*restarts, "--torch", python])
        if peers is None:
            print(f"record: no restarts of PyTorch by {python}", file=sys.stderr, flush=True)
        found += peers or []
    return [{"columns": ["job", "system", "median, ms", "90th percentile", "longest", "kills"],
             "rows": [[f["job"], f["system"], *(short(f[key]) for key in ("value", "p90", "most")), str(f["kills"])] for f in found]}]


def scale(bin_dir, peer, entry):
    text = text_of(*command(str(bin_dir), "scale", "--pictures", str(ROOT / "docs/pictures"), "--markdown"))
    return [{"columns": head, "rows": rows} for head, *rows in rows_of(text)]


def shell(bin_dir, peer, entry):
    value = {(line["bench"], line.get("processes")): line for line in printed(bin_dir, "repl")}
    start = lambda n: f"{value['repl_start_ms', n]['value']:.0f} ms"
    both = lambda name: [f"{short(value[name, None][key])} us" for key in ("value", "cpp_us")]
    kept = [row for row in entry["tables"][0]["rows"] if row[0].startswith("Ctrl-C")]  # tests/repl/terminal.py says it
    return [{"columns": entry["tables"][0]["columns"],
             "rows": [["start to the first answer, in one process", start(1), ""], ["start to the first answer, three processes", start(3), ""],
                      ["call of a method, int64", *both("repl_call_us")], ["call of a method, tensor 64 x 32", *both("repl_tensor_call_us")],
                      ["training step of the demo (784-128-10, batches of 64, two workers)", *both("repl_training_step_us")], *kept]}]


def tls(bin_dir, peer, entry):
    return [{"columns": encrypted.COLUMNS, "rows": encrypted.rows(str(bin_dir), int(entry["command"].split()[-1]))}]


def watched(bin_dir, peer, entry):
    [line] = lines([sys.executable, str(ROOT / "bench/watched.py"), str(bin_dir)]) or sys.exit("record: watched failed")
    return [{"columns": ["CPU per step", "microseconds"],
             "rows": [["unwatched", short(line["alone"])], [f"by {line['watchers']} watchers, ten times a second each", short(line["watched"])],
                      [f"median ratio of {line['rounds']} turns", f"{line['ratio']:.3f}"]]}]


def nanogpt(bin_dir, peer, entry):
    text = pathlib.Path(os.environ.get("TROUPE_DATA", ".")) / "tinyshakespeare.txt"
    [line] = lines([sys.executable, str(ROOT / "bench/nanogpt.py"), str(bin_dir), str(text), "--python", os.environ.get("TROUPE_TORCH", "python3"),
                    "--losses"]) or sys.exit("record: nanogpt failed")
    return [{"columns": ["nanoGPT, one thread", "Troupe", "PyTorch"],
             "rows": [["an iteration, ms", short(line["troupe_us"] / 1e3), short(line["pytorch_us"] / 1e3)],
                      [f"median ratio of {line['turns']} turns", f"{line['ratio']:.2f}", "1"],
                      ["validation loss after 2,000 iterations", f"{line['troupe_loss']:.3f}", f"{line['pytorch_loss']:.3f}"]]}]


MEASURED = {"axes": compared, "calls": compared, "calls-tcp": compared, "chain": chain, "collectives": compared, "contexts": contexts, "ddp": compared, "references": references, "restarts": restarts, "scale": scale,
            "sharded": compared, "shell": shell, "tls": tls, "watched": watched, "nanogpt": nanogpt}


SAME_LOSSES = "Both sides begin with the same values, and their first five losses agree to 1e-4."
# Entries that no file has yet.
NEW = {"tls": {"title": "Calls over TCP by TLS",
               "command": "./dev bench tls 5",
               "notes": ["Two processes over loopback, plain and with `TROUPE_TLS=require`, in turns. Both ends share the machine's cores, so both ends' work counts; between hosts each has its own."]},
       "collectives": {"title": "Sums over groups",
                       "command": "./dev bench compare collectives mpi --rounds 5",
                       "notes": ["Between processes of one host. all_reduce of float32 in place, called in methods of actors; the peers are PyTorch's Gloo and, in "
                                 "the lines of mpi, Open MPI where it is installed."]},
       "ddp": {"title": "A data-parallel step",
               "command": "./dev bench compare ddp --rounds 5",
               "notes": ["A perceptron of 1024-2048-2048-1024, batch 512, Adam, in one process and by two replicas of one thread each, between processes of one host. The peer is "
                         f"DistributedDataParallel over Gloo. {SAME_LOSSES}"]},
       "nanogpt": {"title": "A small language model on one thread",
                   "command": "./dev bench nanogpt",
                   "notes": ["nanoGPT's configuration for CPUs: characters of 1 MB of Shakespeare, 4 layers, 4 heads, width 128, 64 characters, 12 rows, without dropout; "
                             "its published validation loss is about 1.88. `llm::Decoder`, AdamW and clipping, beside the same in PyTorch with scaled_dot_product_attention, in turns."]},
       "watched": {"title": "What it costs to be watched",
                   "command": "./dev bench watched",
                   "notes": ["The processor's time of the three processes of the example `data_parallel` per step, with three `troupe top --json --seconds 0.1` beside it and without, in turns of 4 s."]},
       "restarts": {"title": "From a kill to the first new step",
                    "command": "./dev bench restarts --kills 10",
                    "notes": ["A process of the job is killed at a random moment; the time ends with the first step that is new. Ours: examples under `troupe run --max-restarts`, of three, "
                              "four, three and seven processes, with a checkpoint every 3, 5, 10 and 5 steps. PyTorch: a perceptron under torchrun, of three processes, with a checkpoint "
                              "of DCP every five steps.", "`--elastic`: three replicas of a perceptron with so much state, of which any is killed: a spare takes its place, or a "
                              "worker that is started anew, or the others go on and take in who comes. No step is lost."]},
       "axes": {"title": "Steps over cut sequences and divided experts",
                "command": "./dev bench compare axes --rounds 3",
                "notes": ["Two transformer layers of width 256 with 4 heads over one sequence of so many positions, causal, and a mixture of 8 experts of width 1024, two for each token: in one process, "
                          "and by two of one thread each. The peer's ring is written by hand over isend and irecv around its flash attention, with zigzag cuts; heads and tokens go by all_to_all_single "
                          f"over Gloo; it sums its gradients in one all_reduce. {SAME_LOSSES}"]},
       "sharded": {"title": "Steps of sharded and of cut models",
                   "command": "./dev bench compare sharded --rounds 5",
                   "notes": ["The same perceptron and batch, two processes of one thread each. zero1: `Shard::state`, beside ZeroRedundancyOptimizer and DistributedDataParallel; zero3: `Shard::all` "
                             "with a part for each layer, beside FullyShardedDataParallel with a unit for each (the first one: FSDP2 of PyTorch 2.5 needs CUDA); tensor_parallel: the layers and the "
                             f"loss are cut over two ranks, beside `parallelize_module` and `loss_parallel`. Gloo carries what PyTorch sends. {SAME_LOSSES}"]}}


def written(entry):
    """As the files are written by hand: a row in a line."""
    text = json.dumps(entry, indent=1, ensure_ascii=False)
    return re.sub(r"\[([^\[\]{}]*)\]", lambda row: "[" + re.sub(r"\n\s*", " ", row[1]).strip() + "]", text) + "\n"


def main():
    if len(sys.argv) < 4 or any(name not in MEASURED for name in sys.argv[3:]):
        sys.exit(__doc__)
    bin_dir, peer = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    for name in sys.argv[3:]:
        file = ROOT / f"bench/results/{name}.json"
        entry = json.loads(file.read_text()) if file.exists() else {"id": name, **NEW[name]}
        tables = MEASURED[name](bin_dir, peer, entry)
        entry.update(machine=machine(bin_dir), date=datetime.date.today().isoformat(),
                     commit=text_of("git", "rev-parse", "--short", "HEAD").strip(), tables=tables)
        file.write_text(written(entry))
        print(f"record: {file.relative_to(ROOT)}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
