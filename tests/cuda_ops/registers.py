#!/usr/bin/env python3
"""What the toolkit's assembler says of kernels: registers of a thread, and bytes that do not fit there (spills).

    registers.py NVCC COMPILER [--all] [--table]

Compiles kernels of which time depends on it, for sm_90, attention for sm_80, too; --all: products, too, and all kinds of card. Exit
code 1 if a kernel spills that is not known to, or more than it is known to, 77 without a toolkit. --table prints all of them.
"""
import pathlib, re, subprocess, sys, tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parents[2]
ATTENTION, ROWS, OTHERS = ("flash", "flash_grad"), ("norm", "softmax", "loss", "conv_products"), ("matmul",)
CARDS = (80, 86, 89, 90, 100)
# What spills, and how many bytes at most on any card: docs/explanation/architecture.md says so, too.
KNOWN = {"OfKeys<float, 128>": 40, "SoftmaxRows<BFloat16, 4, 128, true>": 32}


def kernels(nvcc, compiler, unit, card, folder):
    """[(kernel, registers, bytes spilled)] of a unit."""
    command = [nvcc, "-ccbin", compiler, "-std=c++20", "-O3", "--fmad=false", "--expt-relaxed-constexpr", "-cubin", f"-arch=sm_{card}",
               "-Xptxas", "-v", f"-I{ROOT}", str(ROOT / "ops/cuda" / f"{unit}.cu"), "-o", f"{folder}/{unit}.{card}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"registers: {unit}.cu does not compile for sm_{card}:\n{done.stdout}")
    text = subprocess.run(["c++filt"], input=done.stdout, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = re.findall(r"Compiling entry function '(.*?)' for.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers", text, re.S)
    if not found:
        sys.exit(f"registers: the assembler says nothing of {unit}.cu:\n{text}")
    return [(short(name), int(registers), max(int(stores), int(loads))) for name, stores, loads, registers in found]


def short(name):
    """The body that a kernel runs: void a::flash<a::(anonymous namespace)::Forward<float, 64> >(...) is Forward<float, 64>."""
    name = re.sub(r"\(anonymous namespace\)::|troupe::(internal::)?(ops::on_cuda::)?", "", name.removeprefix("void "))
    depth = 0
    for end, c in enumerate(name):  # up to the parameters
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            break
    name = name[:end] if name[end:end + 1] == "(" else name
    inner = re.fullmatch(r"\w+<(\w+<.*>) ?>", name)
    return re.sub(r" >", ">", inner[1] if inner else name)


def main():
    flags = [a for a in sys.argv[1:] if a.startswith("--")]
    programs = [a for a in sys.argv[1:] if not a.startswith("--")]
    if len(programs) != 2 or set(flags) - {"--all", "--table"}:
        sys.exit(__doc__)
    if not pathlib.Path(programs[0]).exists():
        print("registers: no nvcc here")
        return 77
    work = [(u, card) for card in CARDS for u in (*ATTENTION, *ROWS, *OTHERS)] if "--all" in flags else \
        [(u, card) for card in (80, 90) for u in ATTENTION] + [(u, 90) for u in ROWS]
    with tempfile.TemporaryDirectory(prefix="troupe-registers-") as folder, ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda job: kernels(*programs, *job, folder), work))
    wrong, spilled = [], set()
    for (unit, card), found in zip(work, results):
        for name, registers, spills in found:
            if "--table" in flags or spills:
                print(f"sm_{card} {unit}.cu {name}: {registers} registers, {spills} bytes spilled")
            spilled |= {name} if spills else set()
            if spills > KNOWN.get(name, 0):
                wrong.append(f"{unit}.cu for sm_{card}: {name} spills {spills} bytes, expected {KNOWN.get(name, 0)} at most")
    if "--all" in flags:
        wrong += [f"{name} spills nowhere any more: take it off the list and the page" for name in KNOWN if name not in spilled]
    print(*wrong, f"registers: {sum(map(len, results))} kernels, {len(wrong)} wrong", sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
