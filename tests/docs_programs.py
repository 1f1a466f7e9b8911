#!/usr/bin/env python3
"""The programs of README.md and the pages below docs/, built as an installed user builds them, print what their page says.

    docs_programs.py --write UNIT            writes all of them as one unit, each in a namespace of its own
    docs_programs.py PROGRAM TROUPE [PAGE]   runs each alone and as three processes (TROUPE run -n 3), and compares

A program is a ```cpp block with `int main(`. What it prints stands in ```text blocks below it, one for each run in the same folder,
behind a comment:

    <!-- output -->             all of it
    <!-- output has: text -->   the page shows one of several outputs; each has this text, on a machine that is not too slow for it:
                                one of three runs has to
    <!-- program: alone -->     before the program: it does not use a cluster, and runs alone only
"""
import os, pathlib, re, subprocess, sys, tempfile

root = pathlib.Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]*?) -->\n+)?^```(?P<kind>cpp|text)[^\n]*\n(?P<body>.*?)^```$", re.S | re.M)


class Program:
    def __init__(self, page, line, code, alone):
        self.page, self.line, self.code, self.alone, self.outputs = page, line, code, alone, []
        self.name = re.sub(r"\W", "_", pathlib.Path(page).with_suffix("").as_posix()) + f"_{line}"


def programs():
    found = []
    for path in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        page, text, mine = path.relative_to(root).as_posix(), path.read_text(), []
        if "<!-- blocks compiled in: " in text:
            continue
        for block in BLOCK.finditer(text):
            mark = block["mark"] or ""
            if block["kind"] == "cpp" and "int main(" in block["body"]:
                mine.append(Program(page, text.count("\n", 0, block.start("body")) + 1, block["body"], mark == "program: alone"))
            elif block["kind"] == "text" and mark.startswith("output"):
                if not mine:
                    sys.exit(f"{page}: an output without a program before it")
                has = re.fullmatch(r"output has: (.+)", mark)
                if has and has[1] not in " ".join(block["body"].split()):
                    sys.exit(f"{page}: the output shown does not have: {has[1]}")
                mine[-1].outputs.append((has[1] if has else None, block["body"]))
        found += mine
    return found


def unit():
    """Their includes first. A program that stands on several pages comes once for each: they may differ one day."""
    all_ = programs()
    includes = sorted({line for p in all_ for line in re.findall(r"^#include .*$", p.code, re.M)})
    parts = [f'namespace {p.name} {{\n#line {p.line} "{p.page}"\n'
             + re.sub(r"\bint main\(", "int main_of_page(", re.sub(r"^#include .*$", "", p.code, flags=re.M))
             + "}\n" for p in all_]
    calls = "".join(f'  if (!std::strcmp(argv[1], "{p.name}")) return {p.name}::main_of_page();\n' for p in all_)
    return "\n".join(["// Written by tests/docs_programs.py.", *includes, "#include <cstring>", "", *parts,
                      f"int main(int argc, char** argv) {{\n  if (argc != 2) return 9;\n{calls}  return 9;\n}}\n"])


def lines(text):
    """Names of types without the namespace that the unit adds; what the launcher says of others' lines left out."""
    names = "|".join(p.name for p in programs())
    return [re.sub(rf"\b({names})::", "", line).rstrip() for line in text.splitlines()]


def differs(program, number, command, folder):
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, env=environment)
    got, (has, expected) = lines(done.stdout), program.outputs[number]
    as_expected = has in " ".join(" ".join(got).split()) if has else got == [line.rstrip() for line in expected.splitlines()]
    if done.returncode == 0 and as_expected:
        return ""
    what = has or expected
    return (f"{program.page}:{program.line}: {' '.join(command[:-2])} gives exit code {done.returncode} and\n" + "\n".join(got)
            + f"\nthe page has\n{what}")


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        path, text = pathlib.Path(sys.argv[2]), unit()
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
        sys.exit()
    binary, troupe = (os.path.abspath(name) for name in sys.argv[1:3])
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_")}
    wrong, ran = [], 0
    for program in programs():
        if not program.outputs or not program.page.endswith("".join(sys.argv[3:4])):
            continue
        for start in ([binary],) if program.alone else ([binary], [troupe, "run", "-n", "3", binary]):
            with tempfile.TemporaryDirectory() as folder:
                for number in range(len(program.outputs)):
                    ran += 1
                    for _ in range(3 if program.outputs[number][0] else 1):
                        if not (text := differs(program, number, [*start, program.name], folder)):
                            break
                    if text:
                        wrong.append(text)
    print(*wrong, f"docs-programs: {ran} runs, {len(wrong)} differ from their pages", sep="\n")
    sys.exit(bool(wrong) or not ran)
