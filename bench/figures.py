#!/usr/bin/env python3
"""Writes docs/reference/figures.md from bench/results/*.json.

    figures.py           writes the page
    figures.py --check   exit code 1 if the page is another one, or a page names an entry that is not there

A file has one entry: id (the file's name), title, machine, date, commit, command, notes, tables ({columns, rows}: texts), and pictures
([title, name in docs/pictures]) where there are some. Pages name an entry beside a figure: <!-- figure: calls -->. A cell of a table there
has to be one of the entry's.
"""
import json, pathlib, re, sys

root = pathlib.Path(__file__).resolve().parent.parent
page = root / "docs/reference/figures.md"
ORDER = ("calls", "calls-tcp", "tls", "chain", "collectives", "hosts", "links", "ddp", "sharded", "axes", "layer-bytes", "plans", "plans-paper", "restarts", "actors", "waiting", "steps", "products", "gpu", "gpu-predicted", "shell", "builds", "scale", "references", "contexts")
NEEDED = {"id", "title", "machine", "date", "commit", "command", "notes", "tables"}


def entries():
    found = {}
    for file in sorted((root / "bench/results").glob("*.json")):
        entry = json.loads(file.read_text())
        if missing := NEEDED - set(entry):
            sys.exit(f"{file.name}: no {', '.join(sorted(missing))}")
        if entry["id"] != file.stem:
            sys.exit(f"{file.name}: its id is {entry['id']}, expected the file's name")
        for table in entry["tables"]:
            if any(len(row) != len(table["columns"]) for row in table["rows"]):
                sys.exit(f"{file.name}: a row has another number of cells than there are columns")
        found[file.stem] = entry
    return found


def row(cells):
    return "| " + " | ".join(cells).replace("|  ", "| ") + " |"


def written(found):
    ids = [i for i in ORDER if i in found] + sorted(set(found) - set(ORDER))
    text = ["# Figures", "", "Written from `bench/results/` by `python3 bench/figures.py`. [Measure](../contributing/measure.md) says how to repeat each and how to read a ratio. Compare ratios",
            "rather than absolute values: most were taken on shared virtual machines.", ""]
    for entry in (found[i] for i in ids):
        text += [f"## {entry['title']}", "", f"{entry['machine']}; {entry['date']}, at {entry['commit']}; `{entry['command']}`.", ""]
        for note in entry["notes"]:
            text += [note, ""]
        for table in entry["tables"]:
            text += [row(table["columns"]), "|" + "---|" * len(table["columns"]), *map(row, table["rows"]), ""]
        text += [f"![{title}](../pictures/{name}.svg)" for title, name in entry.get("pictures", ())] + [""] * bool(entry.get("pictures"))
    return "\n".join(text).rstrip() + "\n"


def wrong_uses(found):
    for file in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        if file == page:
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            for name in re.findall(r"<!-- figure: ([\w-]+) -->", line):
                if name not in found:
                    yield f"{file.relative_to(root)}:{number}: there is no bench/results/{name}.json"
                    continue
                known = {cell for table in found[name]["tables"] for cells in table["rows"] for cell in cells}
                for cell in (c.strip() for c in line.strip("| ").split("|")[1:]):
                    if cell not in known:
                        yield f"{file.relative_to(root)}:{number}: bench/results/{name}.json has no figure '{cell}'"


if __name__ == "__main__":
    found = entries()
    if sys.argv[1:] != ["--check"]:
        page.write_text(written(found))
        sys.exit()
    wrong = list(wrong_uses(found))
    if not page.exists() or page.read_text() != written(found):
        wrong.append("docs/reference/figures.md is not what bench/results gives: run python3 bench/figures.py")
    print(*wrong, f"figures: {len(found)} entries, {len(wrong)} wrong", sep="\n")
    sys.exit(bool(wrong))
