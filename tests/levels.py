#!/usr/bin/env python3
"""Runs a test program once for each level of instructions that this machine has below its widest one, which all tests use.

    levels.py TROUPE COMMAND...    exit code 1 if one of them fails
"""
import os, re, subprocess, sys

troupe, command = sys.argv[1], sys.argv[2:]
environment = {k: v for k, v in os.environ.items() if k != "TROUPE_CPU_LEVEL"}
said = subprocess.run([troupe, "--version"], capture_output=True, text=True, check=True, env=environment).stdout
found = re.search(r"^cpu level: (\w+) of ([\w, ]+)$", said, re.M)
if not found:
    sys.exit(f"{troupe} --version names no levels:\n{said}")
widest, levels = found[1], found[2].split(", ")
if levels[-1] != widest:
    sys.exit(f"unless told otherwise, operators use {widest}, which is not the last of {levels}")
if levels == [widest]:
    print(f"test-skipped: {widest} is the only level of this machine")
failed = []
for level in levels[:-1]:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment | {"TROUPE_CPU_LEVEL": level})
    # What a single test of it left out must not look to ctest as if all were skipped.
    print(f"---- at level {level}\n{done.stdout.replace('test-skipped:', 'left out:')}", flush=True)
    if done.returncode:
        failed.append(level)
if failed:
    sys.exit(f"failed at level {', '.join(failed)}")
