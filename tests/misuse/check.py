#!/usr/bin/env python3
"""Compiles each case of cases.cpp, which must not compile, and reads the compiler's answer: the sentence of the case stands in
its first ten lines, and there are at most 25 lines.

    check.py COMPILER ROOT [FLAG...]
"""
import concurrent.futures, os, pathlib, re, subprocess, sys

compiler, root, flags = sys.argv[1], sys.argv[2], sys.argv[3:]
source = pathlib.Path(__file__).parent / "cases.cpp"
sentences = re.findall(r"#(?:el)?if CASE == (\d+)\n// CASE: (.+)", source.read_text())


def check(number, sentence):
    run = subprocess.run(
        [compiler, "-std=c++20", "-fsyntax-only", "-Wno-unused", f"-I{root}", f"-DCASE={number}", *flags, str(source)],
        capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
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


with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    wrong = [text for text in pool.map(lambda case: check(*case), sentences) if text]
print(*wrong, f"misuse: {len(sentences) - 1} cases, {len(wrong)} wrong", sep="\n")
sys.exit(bool(wrong))
