#!/usr/bin/env python3
"""What people copy works: README.md shows the program that ./dev new writes (tests/install/check.py builds and runs it), character for
character, and every example of the pages below stands in a test, but for its line breaks."""
import pathlib, re, sys

PAGES = {"docs/howto/load-data.md": "tests/data/guide_test.cpp", "docs/howto/custom-functions.md": "tests/autograd_distributed/own_functions_test.cpp"}
root = pathlib.Path(__file__).resolve().parent.parent


def blocks(name):
    return re.findall(r"```cpp\n(.*?)```", (root / name).read_text(), re.S)


def words(text):
    return " ".join(text.split())


program = (root / "examples/starter/main.cpp").read_text()
if program not in blocks("README.md"):
    sys.exit(f"README.md: no ```cpp block is examples/starter/main.cpp; expected:\n{program}")
for page, test in PAGES.items():
    guide = words((root / test).read_text())
    for block in blocks(page):
        if words(block) not in guide:
            sys.exit(f"{page}: an example is not in {test}; copy it there:\n{block}")
print("README.md shows examples/starter/main.cpp;", ", ".join(f"{page} shows {test}" for page, test in PAGES.items()))
