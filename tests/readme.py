#!/usr/bin/env python3
"""What people copy works: the program in README.md is examples/quickstart.cpp with the includes of an installed Troupe, character for
character, and every example of the pages below stands in a test, but for its line breaks."""
import pathlib, re, sys

PAGES = {"docs/data.md": "tests/data/guide_test.cpp", "docs/own-functions.md": "tests/autograd_dist/own_functions_test.cpp"}
root = pathlib.Path(__file__).resolve().parent.parent


def blocks(name):
    return re.findall(r"```cpp\n(.*?)```", (root / name).read_text(), re.S)


def words(text):
    return " ".join(text.split())


program = re.sub(r'#include "(?:troupe/)?(.*)"', r"#include <troupe/\1>", (root / "examples/quickstart.cpp").read_text())
if program not in blocks("README.md"):
    sys.exit(f"README.md: no ```cpp block is examples/quickstart.cpp with installed headers; expected:\n{program}")
for page, test in PAGES.items():
    guide = words((root / test).read_text())
    for block in blocks(page):
        if words(block) not in guide:
            sys.exit(f"{page}: an example is not in {test}; copy it there:\n{block}")
print("README.md shows examples/quickstart.cpp;", ", ".join(f"{page} shows {test}" for page, test in PAGES.items()))
