#!/usr/bin/env python3
"""What `troupe plan` says of layouts of the example sharded, beside what their steps take: two workers on two hosts that are network namespaces of
this machine, whose link carries so much. For root, on Linux.

    plan.py BIN_DIR TEXT_FILE [--rate 1gbit] [--width 128] [--batch 16]

A line for each layout; in the end how much slower the plan's first one is than the fastest that ran.
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
arguments.add_argument("--width", default="128")
arguments.add_argument("--batch", default="16")
given = arguments.parse_args()


def seconds(number, unit):
    return float(number) * {"s": 1, "ms": 1e-3, "us": 1e-6}[unit]


def run(hosts, *flags):
    return "".join(hosts.run([given.bin_dir / "sharded", given.text, "--width", given.width, "--batch", given.batch, *flags], 1))


def check(hosts, folder, layout):
    (folder / "layout.json").write_text(layout if isinstance(layout, str) else json.dumps(layout))
    said = SAID.match(run(hosts, "--layout", folder / "layout.json", "--check", folder / "model.json"))
    if not said:
        sys.exit("plan.py: --check has said something else")
    name, took, predicted, step_off, memory_off = said[1], seconds(said[4], said[5]), seconds(said[2], said[3]), int(said[6]), int(said[9])
    print(json.dumps({"layout": name, "predicted_ms": round(predicted * 1e3, 2), "step_ms": round(took * 1e3, 2), "step_off": step_off, "tensors_off": memory_off}),
          flush=True)
    return took


try:
    with tempfile.TemporaryDirectory() as name, Hosts(2, given.rate) as hosts:
        folder = pathlib.Path(name)
        run(hosts, "--measure", folder / "model.json")
        steps = [check(hosts, folder, layout) for layout in LAYOUTS]
        subprocess.run([given.bin_dir / "troupe", "plan", folder / "model.json", "--layout", folder / "plan.json"], check=True, stdout=subprocess.DEVNULL)
        chosen = check(hosts, folder, (folder / "plan.json").read_text())
        print(json.dumps({"rate": given.rate, "chosen_over_best": round(chosen / min(*steps, chosen), 3)}))
except Missing as missing:
    sys.exit(f"plan.py: {missing}")
