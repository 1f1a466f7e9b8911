#!/usr/bin/env python3
"""Runs a benchmark program with --quick and checks what it prints.

    check.py BIN_DIR rpc|latency|refs|model|ps|ops|operators|contexts|pipeline|chain|collectives|ddp|sharded|axes|commits|repl|gpu|scale     exit code 1, with the reason, if a line is missing, unknown or malformed
"""
import ast, json, math, os, subprocess, sys, tempfile
import xml.etree.ElementTree as tree

from programs import PROCESSES, command

US, RATE = "us", "1/s"


def operators():
    """The lines of torch_operators.py, read without PyTorch."""
    with open(os.path.join(os.path.dirname(__file__), "torch_operators.py")) as source:
        tables = {a.targets[0].id: [k.value for k in a.value.keys] for a in ast.parse(source.read()).body
                  if isinstance(a, ast.Assign) and isinstance(a.value, ast.Dict)}
    both, forward = tables["DIFFERENTIABLE"], tables["OTHERS"]
    return [f"{name}{what}_ns" for name in both for what in ("", "_gradient")] + [f"{name}_ns" for name in forward]


TO_64 = [1, 2, 4, 8, 16, 32, 64]
# What bench_scale says about growth: of which field of which lines, over what; True: the field is a rate.
CURVES = [("scale_callers_us", "value", "callers", False), ("scale_callers_us", "calls_per_s", "callers", True),
          ("scale_in_flight_us", "value", "in_flight", False), ("scale_workers_us", "value", "workers", False),
          ("scale_workers_us", "in_turn", "workers", False), ("scale_workers_calls_per_s", "value", "workers", True),
          *(("scale_backward_" + what + "_us", field, what, False) for what in ("hops", "fan_out") for field in ("value", "step")),
          *(("scale_connection_bytes", field, "connections", False) for field in ("value", "used")),
          *(("scale_" + what + "_bytes", field, what + "s", False) for what in ("actor", "reference") for field in ("value", "holder"))]
SMALL = [("barrier_us", 0), *((name, 4) for name in ("broadcast_us", "reduce_us", "all_gather_us", "allreduce_list_us"))]
EXPECTED = {
    "rpc": [("rpc_echo_us", US, {}), ("rpc_builtin_us", US, {}),
            *(("rpc_tensor_us", US, {"kib": k}) for k in (4, 1024, 16384, 65536)),
            ("rpc_async_calls_per_s", RATE, {}), ("rpc_async_builtin_calls_per_s", RATE, {}),
            ("rref_create_fetch_us", US, {}), *(("dist_backward_us", US, {"hops": h}) for h in (1, 5, 20))],
    "latency": [("raw_ping_pong_us", US, {}), ("rpc_echo_us", US, {}), ("rpc_echo_each_ms_us", US, {}),
                ("idle_cpu_ms_per_s", "ms", {}), *(("rpc_transfer_us", US, {"kib": k}) for k in (1024, 16384, 65536)),
                ("rpc_echo_p99_us", US, {}), ("rpc_echo_p99_under_load_us", US, {}),
                ("rpc_echo_allocations", "1", {}), ("rpc_echo_bytes", "bytes", {})],
    "operators": [(name, "ns", {}) for name in operators()],
    "refs": [*(("refs_" + what + "_us", US, {"live": n}) for n in (10**3, 10**4, 10**5, 10**6)
               for what in ("create", "copy", "pass", "drop", "fetch")), ("refs_drop_all_us", US, {"live": 10**6})],
    "contexts": [*(("penalty_us", US, {"layers": 8, "workers": n}) for n in (0, 2)), ("context_step_us", US, {"live": 0}),
                 *(line for n in (100, 1000, 10000) for line in (("context_step_us", US, {"live": n}),
                                                                 ("context_bytes", "bytes", {"live": n}))),
                 ("context_end_us", US, {"live": 10000})],
    "repl": [("repl_start_ms", "ms", {"processes": 1}), ("repl_start_ms", "ms", {"processes": 3}), ("repl_call_us", US, {}),
             ("repl_tensor_call_us", US, {}), ("repl_training_step_us", US, {})],
    "model": [("model_parallel_mlp_step_us", US, {"batch": 64})],
    "ps": [*(("ps_pull_push_per_s", RATE, {"parameters": n, "workers": 2}) for n in (1 << 10, 1 << 20)),
           *(("ps_embedding_lookup_us", US, {"rows": 10**n, "width": 16, "ids": 256}) for n in (4, 5))],  # the largest with --quick
    "pipeline": [("pipeline_single_step_us", US, {"blocks": 6, "width": 128, "batch": 32, "context": 3}),
                 *(("pipeline_step_us", US, {"stages": 2, "chunks": 1, "micro_batches": m}) for m in (1, 4, 8, 32)),
                 *(("pipeline_step_us", US, {"stages": 2, "chunks": 3, "micro_batches": m}) for m in (4, 8)),
                 *(("pipeline_zero_bubble_step_us", US, {"stages": 2, "chunks": 1, "micro_batches": m}) for m in (4, 8, 32)),
                 ("pipeline_single_step_us", US, {"blocks": 6, "width": 128, "batch": 256, "context": 3}),
                 *(("pipeline_large_step_us", US, {"stages": 2, "chunks": 1, "micro_batches": m}) for m in (4, 8, 32))],
    "chain": [("chain_step_us", US, {"stages": 5, "bytes": n}) for n in (256, 1 << 16, 1 << 20, 1 << 24)],
    "collectives": [line for n in (2, 4) for line in (*(("allreduce_us", US, {"kib": k, "ranks": n}) for k in (4, 1024, 25600)),
                                                      *((name, US, {"kib": k, "ranks": n}) for name, k in SMALL))],
    "ddp": [("data_parallel_single_step_us", US, {"batch": 512}), ("data_parallel_step_us", US, {"ranks": 2, "batch": 512})],
    "sharded": [(name, US, {"ranks": 2, "batch": 512}) for name in ("zero1_step_us", "zero3_step_us", "tensor_parallel_step_us")],
    "axes": [(name, US, {"ranks": ranks, "time": 512}) for name, ranks in
             (("context_step_us", 1), ("context_heads_step_us", 2), ("context_ring_step_us", 2), ("experts_one_step_us", 1), ("experts_step_us", 2))],
    "commits": [("commits_step_us", US, {"mib": 36}), ("commits_kept_percent", "%", {"mib": 36, "pause_s": 2}), ("commits_cpu_ms", "ms", {"mib": 36})],
    "gpu": [("gpu_copy_gb_per_s", "GB/s", {"mib": 0}), ("gpu_add_gb_per_s", "GB/s", {"mib": 0}),
            *((f"gpu_gemm_{kind}_tflops", "TFLOP/s", {"n": 64}) for kind in ("bf16", "tf32", "fp32")),
            *((f"gpu_{name}_us", US, {"rows": 64, "width": 256}) for name in ("layer_norm", "softmax", "gelu", "layer_norm_both")),
            *((f"gpu_{name}_both_us", US, {"rows": 32, "classes": 128}) for name in ("cross_entropy", "embedding")),
            ("gpu_adamw_us", US, {"parameters": 118 * 8192}), ("gpu_tiny_op_us", US, {"ops": 3}),
            *((f"gpu_{name}_us", US, {"length": 64, "head": 64, "batch": 1}) for name in ("attention", "attention_both", "attention_bf16", "attention_bf16_both")),
            *((f"gpu_piece_{name}_us", US, {"rows": 64, "width": 128}) for name in ("attention", "attention_both", "norm_both", "mlp_both", "loss_both")),
            ("gpu_gpt2_step_ms", "ms", {"batch": 2, "context": 32})],
    "scale": [*(("scale_callers_us", US, {"callers": n}) for n in TO_64),
              *(("scale_in_flight_us", US, {"in_flight": n}) for n in (1, 10, 100, 1000, 5000)),
              *(line for n in (2, 4) for line in (
                  *(("scale_connection_bytes", "B", {"connections": k}) for k in (1, 2) if n == 4),
                  ("scale_idle_cpu_percent", "%", {"workers": n}), ("scale_workers_us", US, {"workers": n}),
                  ("scale_workers_calls_per_s", RATE, {"workers": n}))),
              *(("scale_backward_" + what + "_us", US, {what: n}) for what in ("hops", "fan_out") for n in TO_64),
              *(("scale_actor_bytes", "B", {"actors": 1000 * n}) for n in TO_64[:-1]),
              *(("scale_reference_bytes", "B", {"references": 1000 * n}) for n in TO_64),
              ("scale_local_call_us", US, {}), ("scale_local_tensor_us", US, {}),
              *(("scale_context_overhead_percent", "%", {"tensor": t}) for t in (0, 1)),
              ("scale_after_last_call_us", US, {}), *(("scale_system_calls", "1", {"asleep": a}) for a in (0, 1)),
              *((bench + ("" if field == "value" else "_" + field) + "_growth", "1", {}) for bench, field, _, _ in CURVES)],
    "ops": [*(("matmul_gflops", "GFLOP/s", {"n": n}) for n in (64, 256, 1024)),
            *((line, US, {"elements": 1 << 20}) for line in ("add_us", "add_limit_us")),
            ("tiny_op_fwd_bwd_us", US, {"ops": 3}),
            *(line for b in (64, 256) for line in (("mlp_step_us", US, {"batch": b}),
                                                   ("mlp_step_gemm_fraction", "1", {"batch": b}))),
            ("cnn_step_us", US, {"batch": 64}),
            ("transformer_step_us", US, {"batch": 8, "context": 128, "width": 256, "layers": 4}),
            ("transformer_step_gemm_fraction", "1", {"batch": 8})],
}


# What a line says beside its value.
BESIDE = {"repl_call_us": ["cpp_us"], "repl_tensor_call_us": ["cpp_us"], "repl_training_step_us": ["cpp_us", "ratio"],
          **{f"pipeline_{kind}step_us": ["of_formula"] for kind in ("", "zero_bubble_", "large_")},
          "rpc_tensor_us": ["gb_per_s"], "allreduce_us": ["bus_gb_per_s"], **{name: ["by_messages_us"] for name, _ in SMALL}, "data_parallel_step_us": ["speedup"], "chain_step_us": ["through_caller_us"], "rpc_echo_each_ms_us": ["cpu_percent_here", "cpu_percent_of_the_alarm_alone", "cpu_percent_there"],
          "rpc_transfer_us": ["raw_copy_us", "of_raw"],
          "rpc_echo_p99_us": ["median"], "rpc_echo_p99_under_load_us": ["median", "tensors"], "rpc_echo_allocations": ["there"],
          "scale_callers_us": ["calls_per_s"], "scale_workers_us": ["in_turn"], "scale_connection_bytes": ["used"],
          "scale_backward_hops_us": ["step"], "scale_backward_fan_out_us": ["step"], "scale_actor_bytes": ["holder"],
          "scale_reference_bytes": ["holder"], "scale_context_overhead_percent": ["without_us"],
          "scale_after_last_call_us": ["here", "there"], "scale_system_calls": ["here", "there", "unnoticed"]}
# Steps of one model on one batch, or of one and of a mixture of experts, in several ways: the first losses of each are the same.
WITH_LOSSES = {bench for what in ("ddp", "sharded", "axes") for bench, _, _ in EXPECTED[what]}
# Promised of every call: at most so many allocations in each process, and bytes on the wire.
AT_MOST = {"rpc_echo_allocations": {"value": 20, "there": 15}, "rpc_echo_bytes": {"value": 200}}
# Differences, which a few steps may leave at zero or below.
SIGNED = {"scale_idle_cpu_percent", "scale_connection_bytes", "scale_actor_bytes", "scale_reference_bytes",
          "scale_context_overhead_percent", "scale_system_calls", "scale_after_last_call_us"}


def wrong(text, expected):
    """What is wrong with one line; empty if nothing is."""
    bench, unit, keys = expected
    try:
        line = json.loads(text)
    except ValueError as e:
        return f"no JSON ({e})"
    if not isinstance(line, dict) or not str(line.get("system", "")).startswith("troupe "):
        return "expected an object of system troupe"
    for key, value in {"bench": bench, "unit": unit, **keys}.items():
        if line.get(key) != value:
            return f"{key} is {line.get(key)!r}, expected {value!r}"
    growth = bench.endswith("_growth")
    measured = ["value", *(["fixed", "each", "steepest", "steepest_at"] if growth else []), *BESIDE.get(bench, []), *(["speedup"] if "micro_batches" in keys else [])]
    for key in measured:
        value = line.get(key)
        if isinstance(value, (int, float)) and math.isfinite(value) and (growth or bench in SIGNED):
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0 or key == "value" and value == 0 and not bench.startswith("idle"):
            return f"{key} is {value!r}, expected a positive number"
        if value > (most := AT_MOST.get(bench, {}).get(key, math.inf)):
            return f"{key} is {value}, expected at most {most}"
    losses = ["losses"] if bench in WITH_LOSSES else []
    unknown = set(line) - {"system", "bench", "unit", *keys, *measured, *losses}
    return f"unknown keys {sorted(unknown)}" if unknown else ""


def wrong_losses(lines):
    """What is wrong with the losses of a program's lines; empty if nothing is."""
    for line in lines:
        mixed = line["bench"].startswith("experts")
        beside = next(other for other in lines if other["bench"].startswith("experts") == mixed)
        losses, first = line.get("losses", ()), beside.get("losses", ())
        if len(losses) != 5 or not losses[4] < losses[0]:
            return f"losses of {line['bench']} are {losses}, expected five that fall"
        if not all(abs(a - b) <= 1e-4 for a, b in zip(losses, first)):
            return f"losses of {line['bench']} are {losses}, those of {beside['bench']} {first}; expected differences of 1e-4 at most"
    return ""


def wrong_growth(lines, folder):
    """What is wrong with what bench_scale made of its lines, and with its pictures; empty if nothing is."""
    for bench, field, key, rate in CURVES:
        points = [(line[key], line[key] / line[field] * 1e6 if rate else max(line[field], 1e-9)) for line in lines
                  if line["bench"] == bench]
        said = next(line for line in lines if line["bench"] == bench + ("" if field == "value" else "_" + field) + "_growth")
        (last, most) = points[-1]
        eighth, cost = next(p for p in points if p[0] >= last / 8)
        steepest = max(math.log(b[1] / a[1]) / math.log(b[0] / a[0]) for a, b in zip(points, points[1:]))
        for name, got, expected in (("value", said["value"], most / last / (cost / eighth)),
                                    ("steepest", said["steepest"], steepest)):
            if abs(got - expected) > 0.001 + 0.001 * abs(expected):
                return f"growth of {bench} {field}: {name} is {got}, but its lines say {expected}"
    for picture in ("callers", "workers", "backward", "memory", "connections"):
        try:
            root = tree.parse(os.path.join(folder, f"scale-{picture}.svg")).getroot()
        except (OSError, tree.ParseError) as e:
            return f"scale-{picture}.svg: {e}"
        drawn = [e for e in root.iter() if e.tag.endswith("polyline")]
        if len(drawn) < 2:
            return f"scale-{picture}.svg: {len(drawn)} lines drawn, expected 2 at least"
    return ""


def main():
    if len(sys.argv) != 3 or sys.argv[2] not in PROCESSES:
        sys.exit(__doc__)
    bin_dir, what = sys.argv[1:]
    folder = tempfile.TemporaryDirectory(prefix="troupe-bench-")
    pictures = ["--pictures", os.path.join(folder.name, "pictures")] if what == "scale" else []
    here = ["--device", "cpu"] if what == "gpu" else []
    done = subprocess.run(command(bin_dir, what, "--quick", *pictures, *here), stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"check: bench_{what} failed with exit code {done.returncode}")
    printed, expected = done.stdout.splitlines(), EXPECTED[what]
    if "scale_system_calls" not in done.stdout:  # where nobody may trace, it says so instead
        expected = [line for line in expected if line[0] != "scale_system_calls"]
    for text, line in zip(printed, expected):
        if problem := wrong(text, line):
            sys.exit(f"check: {text}: {problem}")
    if len(printed) != len(expected):
        sys.exit(f"check: {len(printed)} lines, expected {len(expected)}:\n{done.stdout}")
    if expected[0][0] in WITH_LOSSES and (problem := wrong_losses([json.loads(text) for text in printed])):
        sys.exit(f"check: {problem}")
    if pictures and (problem := wrong_growth([json.loads(text) for text in printed], pictures[1])):
        sys.exit(f"check: {problem}")


if __name__ == "__main__":
    main()
