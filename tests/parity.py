#!/usr/bin/env python3
"""tests/parity.md is true to the tests: every test that it cites is in the file that it names, every behaviour has one row
in one of the four states, and the counts at its top are those of its rows.

    parity.py            prints what is wrong; exit code 1 if there is anything
    parity.py --count    writes the counts first
"""
import pathlib, re, sys

root = pathlib.Path(__file__).resolve().parent
page = root / "parity.md"
doc = page.read_text()
states = ["shown", "not tested yet", "not there yet", "does not apply"]
literal = r'"((?:[^"\\]|\\.)*)"'
faults = []


def cases(file):
    """The names of the test cases of a file, with string literals that stand side by side put together."""
    found = re.findall(r"TEST_CASE\(\s*((?:" + literal + r"\s*)+)", file.read_text())
    return {"".join(re.findall(literal, parts[0])).replace(r"\"", '"') for parts in found}


def state(number, text):
    if text == "not tested yet":
        return text
    for known in states[2:]:
        if text.startswith(known + ": "):
            return known
    if not re.fullmatch(r'`[^`]+`: "[^"`]+"(; `[^`]+`: "[^"`]+")*(\. Narrower: .+)?', text):
        faults.append(f'row {number}: neither `file`: "test" nor one of {states[1:]}, but: {text}')
    return "shown"


rows = re.findall(r"^\| (\d+)(?: \[B\])? \| (.+?) \| (.+) \|$", doc, re.M)
numbers = [int(number) for number, _, _ in rows]
if numbers != list(range(1, len(numbers) + 1)):
    faults.append(f"the rows are not numbered 1 to {len(numbers)}, each once and in order")
narrower = "of these on a narrower case"
counts = dict.fromkeys(states, 0)
cited = 0
for number, _, text in rows:
    counts[state(number, text)] += 1
    for file, name in re.findall(r'`([^`]+_test\.cpp)`: "([^"`]+)"', text):
        cited += 1
        if not (root / file).is_file():
            faults.append(f"row {number}: there is no tests/{file}")
        elif name not in cases(root / file):
            faults.append(f'row {number}: tests/{file} has no test case "{name}"')
summary = {**counts, narrower: sum(". Narrower: " in text for _, _, text in rows), "all": len(rows)}
if "--count" in sys.argv[1:]:
    for name, count in summary.items():
        doc = re.sub(rf"^\| {name} \| \d+ \|$", f"| {name} | {count} |", doc, count=1, flags=re.M)
    page.write_text(doc)
for name, count in summary.items():
    if f"| {name} | {count} |" not in doc:
        faults.append(f"the count of '{name}' at the top should be {count}")
if doc.count("_test.cpp") != cited:
    faults.append(f"{doc.count('_test.cpp')} files are named, but {cited} citations read `file`: \"test\"")
if faults:
    sys.exit("tests/parity.md:\n  " + "\n  ".join(faults))
print(f"tests/parity.md: {counts['shown']} of {len(rows)} behaviours shown, {cited} citations in order")
