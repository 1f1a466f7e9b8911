#!/usr/bin/env python3
"""Generated pages of docs/reference are what their sources give.

    docs_generated.py TROUPE            exit code 1 if one is not
    docs_generated.py --write TROUPE    writes them

command.md has what the commands say under --help, shell.md what `troupe repl --reference` prints, figures.md what bench/results has. Others
have tests of their own: operators.md (`pytorch_tests`), cpp/ (`docs_cpp.py`).
"""
import os, pathlib, subprocess, sys

root = pathlib.Path(__file__).resolve().parent.parent
write = sys.argv[1] == "--write"
troupe = os.path.abspath(sys.argv[1 + write])


def said(*command):
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1", "COLUMNS": "120"})
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}")
    return done.stdout


def command_page():
    text = ["# Commands", "", "What each command says under `--help`; written by `./dev docs`. [Launch](../howto/launch.md) shows `troupe run` at work, [the shell](../tutorial/shell.md) `troupe repl`.", ""]
    for title, command in (("troupe", [troupe, "--help"]), ("troupe run", [troupe, "run", "--help"]), ("troupe join", [troupe, "join", "--help"]), ("troupe repl", [troupe, "repl", "--help"]),
                           *((f"troupe data {verb}", [troupe, "data", verb, "--help"]) for verb in ("tokenize", "count", "head")),
                           *((f"troupe {verb}", [troupe, verb, "--help"]) for verb in ("plan", "ways")),
                           *((f"troupe {verb}", [troupe, verb, "--help"]) for verb in ("ps", "top", "waits", "logs", "trace", "metrics", "dashboard")),
                           ("./dev", ["./dev", "help"])):
        text += [f"## {title}", "", "```none", said(*command).rstrip(), "```", ""]
    return "\n".join(text).rstrip() + "\n"


pages = {"command.md": command_page(), "shell.md": said(troupe, "repl", "--reference")}
wrong = []
for name, text in pages.items():
    path = root / "docs/reference" / name
    if write:
        path.write_text(text)
    elif not path.exists() or path.read_text() != text:
        wrong.append(f"docs/reference/{name} is not what its source gives: ./dev docs writes it")
figures = subprocess.run([sys.executable, root / "bench/figures.py", *([] if write else ["--check"])], stdout=subprocess.PIPE, text=True)
print(*wrong, figures.stdout.rstrip(), f"docs-generated: {len(pages)} pages, {len(wrong)} wrong", sep="\n")
sys.exit(bool(wrong) or figures.returncode)
