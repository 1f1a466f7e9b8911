#!/usr/bin/env python3
"""Runs a benchmark program with --quick and checks what it prints.

    check.py BIN_DIR rpc|refs|model|ops|contexts|pipeline     exit code 1, with the reason, if a line is missing, unknown or malformed
"""
import json, math, subprocess, sys

from programs import PROCESSES, command

US, RATE = "us", "1/s"
EXPECTED = {
    "rpc": [("rpc_echo_us", US, {}), ("rpc_builtin_us", US, {}),
            *(("rpc_tensor_us", US, {"kib": k}) for k in (4, 1024, 16384, 65536)),
            ("rpc_async_calls_per_s", RATE, {}), ("rpc_async_builtin_calls_per_s", RATE, {}),
            ("rref_create_fetch_us", US, {}), *(("dist_backward_us", US, {"hops": h}) for h in (1, 5, 20))],
    "refs": [*(("refs_" + what + "_us", US, {"live": n}) for n in (10**3, 10**4, 10**5, 10**6)
               for what in ("create", "copy", "pass", "drop", "fetch")), ("refs_drop_all_us", US, {"live": 10**6})],
    "contexts": [("context_step_us", US, {"live": 0}),
                 *(line for n in (100, 1000, 10000) for line in (("context_step_us", US, {"live": n}),
                                                                 ("context_bytes", "bytes", {"live": n}))),
                 ("context_end_us", US, {"live": 10000})],
    "model": [("model_parallel_mlp_step_us", US, {"batch": 64})],
    "pipeline": [("pipeline_single_step_us", US, {"blocks": 6, "width": 128, "batch": 32, "context": 64}),
                 *(("pipeline_step_us", US, {"stages": 2, "micro_batches": m}) for m in (1, 4, 8, 32)),
                 *(("pipeline_zero_bubble_step_us", US, {"stages": 2, "micro_batches": m}) for m in (4, 8, 32))],
    "ops": [*(("matmul_gflops", "GFLOP/s", {"n": n}) for n in (64, 256, 1024)),
            *((line, US, {"elements": 1 << 20}) for line in ("add_us", "add_limit_us")),
            ("tiny_op_fwd_bwd_us", US, {"ops": 3}),
            *(line for b in (64, 256) for line in (("mlp_step_us", US, {"batch": b}),
                                                   ("mlp_step_gemm_fraction", "1", {"batch": b}))),
            ("cnn_step_us", US, {"batch": 64}),
            ("transformer_step_us", US, {"batch": 8, "context": 128, "width": 256, "layers": 4})],
}


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
    measured = ["value", *(["gb_per_s"] if bench == "rpc_tensor_us" else []), *(["speedup"] if "stages" in keys else [])]
    for key in measured:
        value = line.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0 or key == "value" and value == 0:
            return f"{key} is {value!r}, expected a positive number"
    unknown = set(line) - {"system", "bench", "unit", *keys, *measured}
    return f"unknown keys {sorted(unknown)}" if unknown else ""


def main():
    if len(sys.argv) != 3 or sys.argv[2] not in PROCESSES:
        sys.exit(__doc__)
    bin_dir, what = sys.argv[1:]
    done = subprocess.run(command(bin_dir, what, "--quick"), stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"check: bench_{what} failed with exit code {done.returncode}")
    printed, expected = done.stdout.splitlines(), EXPECTED[what]
    for text, line in zip(printed, expected):
        if problem := wrong(text, line):
            sys.exit(f"check: {text}: {problem}")
    if len(printed) != len(expected):
        sys.exit(f"check: {len(printed)} lines, expected {len(expected)}:\n{done.stdout}")


if __name__ == "__main__":
    main()
