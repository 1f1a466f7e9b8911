#!/usr/bin/env python3
"""What `troupe plan` says of layouts of the example sharded, beside what their steps take: two workers on two hosts that are network namespaces of
this machine, whose link carries so much. For root, on Linux.

    plan.py BIN_DIR TEXT_FILE [--rate 1gbit] [--delay 5] [--width 128] [--batch 16] [--slowed]

A line for each layout; in the end how much slower the plan's first one is than the fastest that ran. --slowed: each worker has a core, and one shares
its own with a loop, which leaves it half: what --check says of that, the rows that a plan gives it, and its step beside the ideal one.
"""
import argparse, json, pathlib, re, subprocess, sys, tempfile

from namespaces import Hosts, Missing

LAYOUTS = [{"mesh": "dp=2", "micro_batches": 1}, {"mesh": "dp=2", "micro_batches": 4}, {"mesh": "dp=2", "micro_batches": 1, "shard": "gradients"},
           {"mesh": "pp=2", "micro_batches": 4}, {"mesh": "pp=2", "micro_batches": 4, "schedule": "zb-h1"}, {"mesh": "pp=2", "micro_batches": 1}]
SAID = re.compile(r"(.*)\n  a step: predicted (\S+) (\S+), measured (\S+) (\S+) \(([-+]\d+) %\)\n  tensors of \S+: predicted (.*), measured (.*) \(([-+]\d+) %\)")

arguments = argparse.ArgumentParser()
arguments.add_argument("bin_dir", type=pathlib.Path)
arguments.add_argument("text", type=pathlib.Path)
arguments.add_argument("--rate", default="1gbit")
arguments.add_argument("--delay", type=float, default=0, help="ms, one way")
arguments.add_argument("--loss", type=float, default=0, help="percent of packets")
arguments.add_argument("--width", default="128")
arguments.add_argument("--batch", default="16")
arguments.add_argument("--slowed", action="store_true")
given = arguments.parse_args()


def seconds(number, unit):
    return float(number) * {"s": 1, "ms": 1e-3, "us": 1e-6}[unit]


ON_ITS_CORE = ["sh", "-c", 'exec taskset -c "$RANK" "$@"', "sh"]


def run(hosts, *flags):
    return "".join(hosts.run([*(ON_ITS_CORE if given.slowed else []), given.bin_dir / "sharded", given.text, "--width", given.width, "--batch", given.batch, *flags], 1))


def check(hosts, folder, layout):
    (folder / "layout.json").write_text(layout if isinstance(layout, str) else json.dumps(layout))
    said = SAID.match(run(hosts, "--layout", folder / "layout.json", "--check", folder / "model.json"))
    if not said:
        sys.exit("plan.py: --check has said something else")
    name, took, predicted, step_off, memory_off = said[1], seconds(said[4], said[5]), seconds(said[2], said[3]), int(said[6]), int(said[9])
    print(json.dumps({"layout": name, "predicted_ms": round(predicted * 1e3, 2), "step_ms": round(took * 1e3, 2), "step_off": step_off, "tensors_off": memory_off}),
          flush=True)
    return took


def plan(folder):
    subprocess.run([given.bin_dir / "troupe", "plan", folder / "model.json", "--layout", folder / "plan.json"], check=True, stdout=subprocess.DEVNULL)
    return (folder / "plan.json").read_text()


def slowed(hosts, folder):
    """Half of the second worker's core goes to somebody else."""
    run(hosts, "--measure", folder / "model.json")
    even = check(hosts, folder, {"mesh": "dp=2", "micro_batches": 1})
    with subprocess.Popen(["taskset", "-c", "1", "sh", "-c", "while :; do :; done"]) as loop:
        try:
            (folder / "layout.json").write_text(json.dumps({"mesh": "dp=2", "micro_batches": 1}))
            print(run(hosts, "--layout", folder / "layout.json", "--check", folder / "model.json"), end="", flush=True)
            run(hosts, "--measure", folder / "model.json")
            chosen = plan(folder)
            took = check(hosts, folder, chosen)
        finally:
            loop.kill()
    print(json.dumps({"slowed": "w1", "rows": json.loads(chosen).get("rows"), "cuts": json.loads(chosen).get("cuts"), "step_ms": round(took * 1e3, 2),
                      "of_ideal": round(took / (even * 2 / 1.5), 3)}))


try:
    with tempfile.TemporaryDirectory() as name, Hosts(2, given.rate, given.bin_dir, given.delay, given.loss) as hosts:
        folder = pathlib.Path(name)
        if given.slowed:
            slowed(hosts, folder)
            sys.exit()
        run(hosts, "--measure", folder / "model.json")
        steps = [check(hosts, folder, layout) for layout in LAYOUTS]
        chosen = check(hosts, folder, plan(folder))
        print(json.dumps({"rate": given.rate, "delay_ms": given.delay, "width": given.width, "chosen_over_best": round(chosen / min(*steps, chosen), 3)}))
except Missing as missing:
    sys.exit(f"plan.py: {missing}")
