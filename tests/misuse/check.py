#!/usr/bin/env python3
"""Compiles each case of cases.cpp, which must not compile, and reads the compiler's answer: the sentence of the case stands in
its first ten lines, and there are at most 25 lines. What stands above the cases is precompiled once for all of them.

    check.py COMPILER ROOT [FLAG...]
"""
import concurrent.futures, os, pathlib, re, subprocess, sys, tempfile

compiler, root, flags = sys.argv[1], sys.argv[2], sys.argv[3:]
source = pathlib.Path(__file__).parent / "cases.cpp"
text = source.read_text()
sentences = re.findall(r"#(?:el)?if CASE == (\d+)\n// CASE: (.+)", text)
shared = text[:text.index("#if CASE == ")]
cases = f'#line {shared.count(chr(10)) + 1} "{source}"\n' + text[len(shared):]


def compiled(*words):
    return subprocess.run([compiler, "-std=c++20", "-Wno-unused", f"-I{root}", *flags, *map(str, words)],
                          capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})


def check(folder, number, sentence):
    unit = folder / f"case{number}.cpp"
    unit.write_text(f"#define CASE {number}\n{cases}")
    run = compiled("-fsyntax-only", "-Winvalid-pch", "-include", folder / "shared.h", unit)
    lines = run.stderr.splitlines()
    if number == "0":
        return "" if run.returncode == 0 else f"case 0 does not compile:\n{run.stderr[:4000]}"
    if run.returncode == 0:
        return f"case {number} compiles; it should say: {sentence}"
    # A compiler may put a line break and markers into the sentence; compare words.
    plain = " ".join(" ".join(lines[:10]).replace("\u2018", "'").replace("\u2019", "'").split())
    if sentence not in plain:
        return f"case {number} does not say in ten lines: {sentence}\n" + "\n".join(lines[:20])
    if len(lines) > 25:
        return f"case {number} takes {len(lines)} lines to say: {sentence}\n" + "\n".join(lines)
    return ""


with tempfile.TemporaryDirectory(prefix="troupe-misuse-") as made:
    folder = pathlib.Path(made)
    (folder / "shared.h").write_text(f'#line 1 "{source}"\n{shared}')
    is_clang = "clang" in compiled("--version").stdout
    once = ["-fpch-instantiate-templates"] if is_clang else []  # and not for each case again
    first = compiled(*once, "-x", "c++-header", folder / "shared.h", "-o", folder / ("shared.h.pch" if is_clang else "shared.h.gch"))
    if first.returncode:
        sys.exit(f"what stands above the cases does not compile:\n{first.stderr[:4000]}")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = [said for said in pool.map(lambda case: check(folder, *case), sentences) if said]
print(*wrong, f"misuse: {len(sentences) - 1} cases, {len(wrong)} wrong", sep="\n")
sys.exit(bool(wrong))
