#!/usr/bin/env python3
"""Runs every block of docs/repl.md, and every transcript of this folder, and compares what is printed.

    transcripts.py TROUPE DOCUMENT...      exit code 1 if something differs
    transcripts.py --write TROUPE DOCUMENT...   writes what was printed instead

A block ```text that begins with ">> " is a session: its lines are fed to `troupe repl -i`. A block ```lua is a script that
has to end well; ```sh blocks whose lines begin with "troupe" are run. What differs from run to run (times, numbers of
contexts) is written as ~ in the document.
"""
import os, pathlib, re, subprocess, sys, tempfile

write = sys.argv[1] == "--write"
troupe, documents = os.path.abspath(sys.argv[1 + write]), sys.argv[2 + write:]
environment = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_")} | {"NO_COLOR": "1"}
environment["PATH"] = os.path.dirname(os.path.abspath(troupe)) + ":" + environment["PATH"]
failed = False
places = [(r"\d[\d.]* (us|ms|s)\b", "~ \\1"), (r"context [0-9a-f]+", "context ~")]


def same(text):
    for pattern, into in places:
        text = re.sub(pattern, into, text)
    return [line.rstrip() for line in text.strip().splitlines()]


def run(arguments, text, folder):
    done = subprocess.run([troupe, "repl", *arguments], input=text, capture_output=True, text=True, env=environment, cwd=folder, timeout=300)
    return done.returncode, done.stdout, done.stderr


for document in documents:
    path = pathlib.Path(document)
    text = path.read_text()
    with tempfile.TemporaryDirectory() as folder:
        def block(match):
            global failed
            kind, body = match[1], match[2]
            if kind == "text" and body.startswith(">> "):
                typed = "".join(line[3:] + "\n" for line in body.splitlines() if line.startswith((">> ", ".. ")))
                done = subprocess.run([troupe, "repl", "-i"], input=typed, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                      env=environment, cwd=folder, timeout=300)
                got = done.stdout
                if write:
                    got = "\n".join(same(got)) + "\n"
                    return f"```text\n{got}```"
                if same(got) != same(body):
                    failed = True
                    print(f"{document}: a session differs\n--- expected\n{body}\n--- got\n{got}")
            elif kind == "lua":
                code, out, err = run(["-"], body, folder)
                if code:
                    failed = True
                    print(f"{document}: a script failed\n{body}\n{out}{err}")
            elif kind == "sh" and body.startswith("troupe repl -e"):
                done = subprocess.run(["bash", "-c", body], capture_output=True, text=True, env=environment, cwd=folder, timeout=300)
                if done.returncode:
                    failed = True
                    print(f"{document}: a command failed\n{body}\n{done.stdout}{done.stderr}")
            return match[0]

        new = re.sub(r"```(\w+)\n(.*?)```", block, text, flags=re.S)
    if write and new != text:
        path.write_text(new)
sys.exit(failed)
