#!/usr/bin/env python3
"""The program in README.md is examples/quickstart.cpp, character for character, so that what people copy compiles."""
import pathlib, re, sys

root = pathlib.Path(__file__).resolve().parent.parent
blocks = re.findall(r"```cpp\n(.*?)```", (root / "README.md").read_text(), re.S)
wanted = (root / "examples/quickstart.cpp").read_text()
if wanted not in blocks:
    sys.exit("README.md: no ```cpp block equals examples/quickstart.cpp; copy the file into it")
print("README.md shows examples/quickstart.cpp")
