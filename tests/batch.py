#!/usr/bin/env python3
"""Writes a unit that compiles several test files at once: batch.py SOURCE_FOLDER OUT FILE...

Each file stands in a namespace of its own: several may use the same name, as many tests have a `leaf` or an actor `Scale`.
The unit includes their headers before, outside of these namespaces; the files' own #include lines then read nothing, by #pragma once.
"""
import pathlib, re, sys


def includes(file, root):
    """The file's #include lines, with the conditions around them, and with paths from the source folder."""
    def from_root(match):
        beside = (file.parent / match[1]).resolve()
        return f'#include "{beside.relative_to(root) if beside.is_file() else match[1]}"'
    for line in file.read_text().splitlines():
        if re.match(r"#\s*(include|if|ifdef|ifndef|elif|else|endif)\b", line):
            yield re.sub(r'#\s*include "([^"]+)".*', from_root, line)


root, out, *names = sys.argv[1:]
root, files = pathlib.Path(root).resolve(), [pathlib.Path(name).resolve() for name in names]
for file in files:
    if re.search(r"^namespace troupe\b", file.read_text(), re.M):
        sys.exit(f"{file.relative_to(root)} opens a namespace of ours, which it cannot within its own: write `using namespace troupe;` "
                 "instead, or add the file to those that tests/CMakeLists.txt names APART")
lines = [line for file in files for line in includes(file, root)]
for file in files:
    lines += [f"namespace {file.stem} {{", f'#include "{file.relative_to(root)}"', f"}}  // namespace {file.stem}"]
text, out = "\n".join(lines) + "\n", pathlib.Path(out)
if not out.exists() or out.read_text() != text:  # an edit below the includes changes nothing here
    out.write_text(text)
