#!/usr/bin/env python3
"""Does what docs/contributing/add-an-operator.md says: copies the files that its code blocks name to OUT, each with its blocks put in.

    follow.py OUT

A block marked ```cpp FILE goes before the end of the file's last namespace, or before its table of kernels; a line of a
list or of a table goes to its end.
"""
import pathlib, re, sys

root, out = pathlib.Path(__file__).resolve().parents[2], pathlib.Path(sys.argv[1])
texts = {}
for file, code in re.findall(r"```cpp (\S+)\n(.*?)```", (root / "docs/contributing/add-an-operator.md").read_text(), re.S):
    text = texts.get(file) or (root / file).read_text()
    line = code.startswith(("  &", "      "))  # of a list
    end = "};\n\nstd::span" if code.startswith("  &") else "  };\n  return" if line else "}  // namespace\n\nKernelTable" if "\nKernelTable " in text else "}  // namespace"
    at = text.rfind(end)
    if at < 0:
        sys.exit(f"docs/contributing/add-an-operator.md: {file} has no place for its block: {end!r} is missing")
    texts[file] = text[:at] + code + ("" if line else "\n") + text[at:]
if not texts:
    sys.exit("docs/contributing/add-an-operator.md: no block is marked ```cpp FILE")
for file, text in texts.items():
    path = out / file
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
