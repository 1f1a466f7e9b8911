#!/usr/bin/env python3
"""Tries what ./dev gpu does with its measurements, and with programs for simulated GPUs the whole script.

    run_test.py [BIN]
"""
import json, os, subprocess, sys, tempfile

from report import key, predictions, table

HERE = os.path.dirname(os.path.abspath(__file__))
PREDICTED = os.path.join(HERE, "..", "..", "bench", "results", "gpu-predicted.json")


def line(system, value, unit="us", way=None, **sizes):
    return {"system": system, "bench": "gpu_x", "value": value, "unit": unit, **({"way": way} if way else {}), **sizes}


def cells_of(text, name):
    return next([c.strip() for c in row.strip("|").split("|")] for row in text.splitlines() if row.startswith(f"| {name} "))


def the_table():
    ours = [line("troupe 1", 50, n=1), line("troupe 1", 200, "GB/s", n=2), line("troupe 1", 7, n=3)]
    theirs = [line("torch 2", 40, n=1), line("torch 2", 25, way="flash", n=1), line("torch 2", 100, way="cudnn", n=1),
              line("torch 2", 100, "GB/s", n=2), line("torch 2", 400, "GB/s", way="compiled", n=2)]
    text = table(ours, theirs, {"gpu_x n=1": (10, 20), "gpu_x n=2": (150, 250), "gpu_x n=3": (14, 14), "gpu_x n=4": (1, 2)})
    expected = {"gpu_x n=1": ["50", "40", "0.80", "25 (flash)", "0.50", "10 to 20", "2.50 times the most of it"],
                "gpu_x n=2": ["200", "100", "2.00", "400 (compiled)", "0.50", "150 to 250", "as predicted"],
                "gpu_x n=3": ["7", "not measured", "", "", "", "14", "0.50 times the least of it"],
                "gpu_x n=4": ["not measured", "", "", "", "", "1 to 2", ""]}
    for name, cells in expected.items():
        got = cells_of(text, name)[1:]
        assert got == cells, f"{name}: {got}, expected {cells}"
    assert table([], [], {}).count("\n") == 2


def the_predictions():
    found = predictions(PREDICTED)
    assert len(found) > 10 and all(0 < low <= high for low, high in found.values()), found
    assert found["gpu_gpt2_step_ms batch=8 context=1024"] == (16, 20), found
    return found


def ran(folder, bin_folder, *flags):
    """(exit code, results by part, what the script said)."""
    done = subprocess.run([sys.executable, os.path.join(HERE, "run.py"), bin_folder, "--simulated", "--quick", "--out", folder, *flags],
                          stderr=subprocess.PIPE, text=True)
    with open(os.path.join(folder, "results.json")) as results:
        return done.returncode, {r["part"]: r for r in json.load(results)}, done.stderr


def the_script(bin_folder, predicted):
    with tempfile.TemporaryDirectory(prefix="troupe-gpu-") as folder:
        code, results, said = ran(folder, bin_folder, "--parts", "ours")
        assert code == 0 and list(results) == ["ours"], said
        lines = results["ours"]["lines"]
        # What is predicted is measured, in other sizes here.
        benches = {(line["bench"], *(k for k in line)) for line in lines}
        for name in predicted:
            bench, *sizes = name.split()
            expected = (bench, "system", "bench", "value", "unit", *(s.split("=")[0] for s in sizes))
            assert expected in benches, f"{name} is predicted, and bench_gpu does not measure it"
        with open(os.path.join(folder, "performance.md")) as written:
            text = written.read()
        assert all(cells_of(text, key(line)) for line in lines)
        assert cells_of(text, "gpu_gpt2_step_ms batch=8 context=1024")[1] == "not measured", text

        code, results, said = ran(folder, bin_folder, "--minutes", "0")
        assert code == 0 and all(r["state"] == "skipped" for r in results.values()), results
        assert "kernels,ours,torch," in said, said  # what a second call is to do

        code, results, said = ran(folder, os.path.join(folder, "nowhere"), "--parts", "ours,contract")
        assert code == 1 and [r["state"] for r in results.values()] == ["failed"] * 2, results


the_table()
known = the_predictions()
if len(sys.argv) > 1:
    the_script(sys.argv[1], known)
