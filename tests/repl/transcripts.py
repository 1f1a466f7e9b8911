#!/usr/bin/env python3
"""Runs every block of docs/tutorial/shell.md, and every transcript of this folder, and compares what is printed.

    transcripts.py TROUPE DOCUMENT...      exit code 1 if something differs
    transcripts.py --write TROUPE DOCUMENT...   writes what was printed instead, where it differs
    transcripts.py --self-test      exit code 1 if the comparison itself is wrong

A block ```text that begins with ">> " is a session: its lines are fed to `troupe repl -i`. A block ```lua is a script that
has to end well; ```sh blocks whose lines begin with "troupe" are run. What differs from run to run (times, numbers of
contexts) is written as ~ in the document. Instruction sets round sums in their own ways, so a number of more than six digits
has to have the first six; all else, whole numbers too, stands as it is printed.
"""
import os, pathlib, re, subprocess, sys, tempfile

NUMBER = re.compile(r"(-?\b\d+\.\d*(?:e[+-]?\d+)?|-?\b\d+e[+-]?\d+)")
DIGITS = 6


def digits(number):
    return len(re.sub(r"e.*|\D", "", number).lstrip("0"))


def same_number(a, b):
    if a == b or max(digits(a), digits(b)) <= DIGITS:
        return a == b
    return abs(float(a) - float(b)) <= 10.0 ** -DIGITS * max(abs(float(a)), abs(float(b)))


def agree(expected, got):
    """Whether two lists of lines say the same; every second part of a line is a number that is not whole."""
    if len(expected) != len(got):
        return False
    for pair in zip(expected, got):
        a, b = (NUMBER.split(line) for line in pair)
        if len(a) != len(b) or a[::2] != b[::2] or not all(map(same_number, a[1::2], b[1::2])):
            return False
    return True


def self_test():
    for a, b, equal in [("loss = 1.4291406273841858, 2", "loss = 1.4291405081748962, 2", True),  # a last bit of float32
                        ("1.5000000001", "1.5", True), ("-1.2345678e-05", "-1.2345679e-05", True),
                        ("1.4291406", "1.4291476", False), ("-1.4291406", "1.4291406", False), ("1.2345678e-05", "1.2345678e-04", False),
                        ("[0.2689]", "[0.2690]", False), ("6.", "6.0000", False), ("1.0", "1", False),
                        ("version = 12345678", "version = 12345679", False), ("a 1.4291406", "b 1.4291406", False),
                        ("[ 1.4291406]", "[1.4291406]", False), ("1.4291406 1.4291406", "1.4291406", False)]:
        if agree([a], [b]) != equal:
            sys.exit(f"'{a}' and '{b}' should {'agree' if equal else 'differ'}")
    if agree(["1"], ["1", "2"]):
        sys.exit("a line too many should differ")


if sys.argv[1] == "--self-test":
    self_test()
    sys.exit()

write = sys.argv[1] == "--write"
troupe, documents = os.path.abspath(sys.argv[1 + write]), sys.argv[2 + write:]
environment = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_") or k == "TROUPE_CPU_LEVEL"} | {"NO_COLOR": "1"}
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
                if agree(same(body), same(got)):
                    return match[0]
                if write:
                    got = "\n".join(same(got)) + "\n"
                    return f"```text\n{got}```"
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
