#!/usr/bin/env python3
"""What builds and tests of two checkouts cost, in CPU seconds, side by side: build_turns.py OLD NEW [--tests] [--seconds N] [--presets P,Q] [--targets T,U]

It compiles the units of both by way of a compiler cache that is empty (with --tests it runs their tests) in turns, two at a time, in
random order: a machine that is now and then slower is so for both. `./dev test` must have built both. After N seconds, or all, it says
what the units took that were compiled until then, and what all would take: those of `./dev demo`, and the others. Units that the cache
would have from an earlier preset are left out. (`./dev bench build_times` takes one checkout after another.)
"""
import argparse, collections, json, os, pathlib, random, re, shlex, subprocess, sys, tempfile, threading, time, xml.etree.ElementTree as tree


def said(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def units(folder):
    """(kind, command, environment) of each; OUT- stands for what cpu_seconds() puts there."""
    inputs = lambda *targets: set(said("ninja", "-C", folder, "-t", "inputs", *targets).split())
    demo = inputs("troupe_cli", "digits") if folder.name == "release" else set()
    chosen_ones = inputs(*chosen.targets.split(",")) if chosen.targets else None
    for unit in json.loads(said("ninja", "-C", folder, "-t", "compdb")):
        words = shlex.split(unit["command"])
        compiler = [i for i, word in enumerate(words) if re.search(r"(clang|g)\+\+[-\d]*$", word)]
        if not unit["output"].endswith((".o", ".pch")) or not compiler:
            continue
        if "&&" in words:  # a command of the project's own, which the cache does not see
            words = words[compiler[0]:words.index("&&", compiler[0])]
        if chosen_ones is not None and unit["output"] not in chosen_ones:
            continue
        for flag in {"-o", "-MF"} & set(words):
            words[words.index(flag) + 1] = f"OUT{flag}"
        known_as = " ".join(words).replace(str(folder), "BUILD")
        if known_as not in cached[folder.parent]:
            cached[folder.parent].add(known_as)
            kind = "units of the demo" if unit["output"] in demo else "other units"
            yield f"{folder.name}: {kind}", words, {"CCACHE_DIR": caches[folder.parent].name}


def tests(folder):
    """The same of tests. Those that took 3 s and longer last time are a kind of their own: few of them are much of the time."""
    times = {case.get("name"): float(case.get("time", 0)) for case in tree.parse(folder / "tests.xml").iter("testcase")}
    for test in json.loads(said("ctest", "--show-only=json-v1", cwd=folder))["tests"]:
        settings = {p["name"]: p["value"] for p in test.get("properties", [])}
        environment = settings.get("ENVIRONMENT", [])
        environment = dict(e.split("=", 1) for e in ([environment] if isinstance(environment, str) else environment))
        if "command" in test and test["name"] in times:
            yield f"{folder.name}: {'long' if times[test['name']] >= 3 else 'short'} tests", test["command"], environment


def cpu_seconds(command, folder, environment, out):
    """With those of its children, which a shell knows."""
    command = [word.replace("OUT-", f"{out}/out-") if word.startswith("OUT-") else word for word in command]
    done = subprocess.run(["bash", "-c", '"$@" >/dev/null 2>&1; rc=$?; times >&2; exit $rc', "-", *command], cwd=folder,
                          env={**os.environ, **environment}, capture_output=True, text=True)
    if not done.stderr:  # Ctrl-C ends the shell, too
        return 0.0
    if done.returncode:
        failed.append(" ".join(command)[-100:])
    return sum(float(m) * 60 + float(s) for m, s in re.findall(r"(\d+)m([\d.]+)s", done.stderr.splitlines()[-1]))


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("checkouts", nargs=2, type=pathlib.Path, metavar="CHECKOUT")
parser.add_argument("--tests", action="store_true", help="their tests instead of their units")
parser.add_argument("--seconds", type=float, default=1e9, help="for so long, by the clock")
parser.add_argument("--presets", default="release", help="of which builds, with commas between (release)")
parser.add_argument("--targets", help="units of these only")
chosen = parser.parse_args()
if len({checkout.resolve() for checkout in chosen.checkouts}) < 2:
    sys.exit(f"OLD and NEW are both {chosen.checkouts[0].resolve()}; expected two checkouts")
left, all_of, spent, failed, lock = {}, {}, collections.defaultdict(list), [], threading.Lock()
caches, cached = collections.defaultdict(tempfile.TemporaryDirectory), collections.defaultdict(set)
for checkout in chosen.checkouts:
    left[checkout] = []
    for preset in chosen.presets.split(","):
        folder = checkout.resolve() / "build" / preset
        if not (folder / ("tests.xml" if chosen.tests else "build.ninja")).exists():
            sys.exit(f"{folder} has not been built and tested: run ./dev test there first")
        left[checkout] += [(folder, *work) for work in (tests if chosen.tests else units)(folder)]
    if not left[checkout]:
        sys.exit(f"{checkout} has nothing to {'run' if chosen.tests else 'compile'} in {chosen.presets}")
    all_of[checkout] = collections.Counter(kind for _, kind, _, _ in left[checkout])
    random.Random(1).shuffle(left[checkout])
end = time.monotonic() + chosen.seconds


def work():
    with tempfile.TemporaryDirectory() as out:
        while time.monotonic() < end:
            with lock:
                checkout = max(left, key=lambda c: len(left[c]) / sum(all_of[c].values()))
                if not left[checkout]:
                    return
                folder, kind, command, environment = left[checkout].pop()
            seconds = cpu_seconds(command, folder, environment, out)
            with lock:
                spent[checkout, kind].append(seconds)


workers = [threading.Thread(target=work) for _ in range(2)]
[worker.start() for worker in workers]
try:
    [worker.join() for worker in workers]
except KeyboardInterrupt:  # what runs has been told, too
    end = 0
    [worker.join() for worker in workers]
    sys.exit(130)
print("| checkout | | done | of | CPU seconds | of all |\n|---|---|---:|---:|---:|---:|")
for (checkout, kind), each in sorted(spent.items(), key=str):
    total = all_of[checkout][kind]
    print(f"| {checkout.name} | {kind} | {len(each)} | {total} | {sum(each):.1f} | {sum(each) / len(each) * total:.0f} |")
if failed:
    sys.exit(f"{len(failed)} failed, which may have taken less: the last one ...{failed[-1]}")
