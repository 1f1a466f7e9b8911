#!/usr/bin/env python3
"""Units of the library compile by themselves: without the batches and the precompiled headers of the build, which hide what a unit
forgets to include. With Clang, what its analysis of locks finds counts, too: the sanitizers' build refuses that.

    alone.py BUILD [--commits 50] [--seconds 150]   those that the last commits changed, the newest first, as many as fit
    alone.py BUILD --all                            all of them

BUILD: a folder that CMake has made for Ninja. Skipped where the commits are not there.
"""
import argparse, concurrent.futures, json, os, pathlib, re, shlex, subprocess, sys, time

root = pathlib.Path(__file__).resolve().parent.parent
parser = argparse.ArgumentParser()
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--commits", type=int, default=50)
parser.add_argument("--seconds", type=float, default=150)
parser.add_argument("--all", action="store_true")
given = parser.parse_args()


def commands():
    """{unit: the words that check it}, of units below the source folder."""
    entries = json.loads(subprocess.run(["ninja", "-C", given.build, "-t", "compdb"], capture_output=True, text=True, check=True).stdout)
    out = {}
    for entry in entries:
        source = pathlib.Path(entry["directory"], entry["file"])
        if source.suffix != ".cpp" or not source.exists():
            continue
        units = [source]
        if source.parent.name == "troupe_units":
            units = [root / u for u in re.findall(r'^#include "(\S+\.cpp)"', source.read_text(), re.M)]
        words, rest = shlex.split(entry["command"]), []
        while words and not re.search(r"(clang|g)\+\+[-\d]*$|/c\+\+$", words[0]):
            words.pop(0)  # what starts the compiler
        quiet = ["-Wno-everything", "-Werror=thread-safety"] if words and "clang" in words[0] else ["-w"]
        skip = iter(words)
        for word in skip:
            if word in ("-o", "-c", "-MF", "-MT", "-MQ", "-include", "-include-pch", "-Xclang"):
                what = next(skip, "")
                if word == "-include" and "cmake_pch" not in what:
                    rest += [word, what]
            elif word not in ("-MD", "-Winvalid-pch"):
                rest.append(word)
        for unit in units:
            if unit.is_relative_to(root) and not unit.is_relative_to(root / "build") and not unit.is_relative_to(root / "tests"):
                out.setdefault(str(unit.relative_to(root)), [*rest, *quiet, "-fsyntax-only", str(unit)])
    return out


def changed():
    log = subprocess.run(["git", "-C", root, "log", f"-{given.commits}", "--format=", "--name-only", "--", "*.cpp"], capture_output=True, text=True)
    if log.returncode or not log.stdout.strip():
        print("test-skipped: there are no commits here that say which units have changed")
        sys.exit()
    return list(dict.fromkeys(log.stdout.split()))


known = commands()
units = [u for u in (sorted(known) if given.all else changed()) if u in known]
end = time.monotonic() + (1e9 if given.all else given.seconds)


def check(unit):
    if time.monotonic() > end:
        return unit, None, ""
    done = subprocess.run(known[unit], capture_output=True, text=True, cwd=given.build)
    return unit, done.returncode == 0, done.stderr


with concurrent.futures.ThreadPoolExecutor(os.cpu_count() if given.all else 1) as pool:
    results = list(pool.map(check, units))
for unit, good, said in results:
    if good is False:
        first = [line for line in said.splitlines() if " error: " in line][:3]
        print(f"{unit} does not compile by itself:", *first, sep="\n  ")
if not any(u.startswith("parallel/") for u in known):
    sys.exit("alone: the build's batches are not what this reads: no unit of parallel/ was found in them")
wrong = sum(good is False for _, good, _ in results)
left = sum(good is None for _, good, _ in results)
print(f"alone: {len(results) - wrong - left} units compile by themselves, {wrong} do not, {left} were left for want of time")
sys.exit(wrong > 0)
