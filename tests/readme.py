#!/usr/bin/env python3
"""What people copy compiles: the program in README.md is examples/quickstart.cpp, character for character, and every example
in docs/data.md stands in tests/data/guide_test.cpp, but for its indentation."""
import pathlib, re, sys

root = pathlib.Path(__file__).resolve().parent.parent


def blocks(name):
    return re.findall(r"```cpp\n(.*?)```", (root / name).read_text(), re.S)


def words(text):
    return " ".join(text.split())


if (root / "examples/quickstart.cpp").read_text() not in blocks("README.md"):
    sys.exit("README.md: no ```cpp block equals examples/quickstart.cpp; copy the file into it")
guide = words((root / "tests/data/guide_test.cpp").read_text())
for block in blocks("docs/data.md"):
    if words(block) not in guide:
        sys.exit("docs/data.md: an example is not in tests/data/guide_test.cpp; copy it there:\n" + block)
print("README.md shows examples/quickstart.cpp; docs/data.md shows tests/data/guide_test.cpp")
