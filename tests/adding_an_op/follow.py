#!/usr/bin/env python3
"""Does what docs/adding-an-op.md says: copies the files that its code blocks name to OUT, each with its blocks put in.

    follow.py OUT

A block marked ```cpp FILE goes before the end of the file's last namespace; in the list of operators, before its end.
"""
import pathlib, re, sys

root, out = pathlib.Path(__file__).resolve().parents[2], pathlib.Path(sys.argv[1])
blocks = {}
for file, code in re.findall(r"```cpp (\S+)\n(.*?)```", (root / "docs/adding-an-op.md").read_text(), re.S):
    blocks[file] = blocks.get(file, "") + code
if not blocks:
    sys.exit("docs/adding-an-op.md: no block is marked ```cpp FILE")
for file, code in blocks.items():
    text = (root / file).read_text()
    end = "  };\n  return" if file == "ops/all.cpp" else "}  // namespace"
    at = text.find(end) if file == "ops/all.cpp" else text.rfind(end)
    if at < 0:
        sys.exit(f"docs/adding-an-op.md: {file} has no place for its block: {end!r} is missing")
    text = text[:at] + code + ("" if file == "ops/all.cpp" else "\n") + text[at:]
    path = out / file
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
