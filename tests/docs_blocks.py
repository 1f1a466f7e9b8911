#!/usr/bin/env python3
"""Compiles every ```cpp block of README.md and the pages below docs/ as an installed user does: the headers of Troupe are <troupe/...>.

    docs_blocks.py COMPILER ROOT INCLUDE [FLAG...]      INCLUDE: the folder that has troupe/, as it is installed

A block with `int main(` is a program, which docs_programs.py builds and runs. Any other is a fragment: statements, which go into a
function of their own, a coroutine if they have co_await. Names that they do not declare are those of tests/docs_prelude.h: of its namespace docs, and of
docs::page_calls for the page calls.md. A comment before a block says what else it is:

    <!-- compile: declarations -->         classes and functions: they stay in the page's namespace
    <!-- compile: in an actor -->          statements of a method
    <!-- not compiled: why -->             wrong on purpose, or no whole piece of C++
    <!-- blocks compiled in: path -->      anywhere in a page: that test compiles all of its blocks
"""
import concurrent.futures, os, pathlib, re, subprocess, sys, tempfile

compiler, root, include, flags = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4:]
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]*?) -->\n+)?^```cpp[^\n]*\n(?P<code>.*?)^```$", re.S | re.M)
programs, fragments, wrong, skipped = 0, [], [], 0

for path in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
    name, text = path.relative_to(root), path.read_text()
    elsewhere = re.search(r"<!-- blocks compiled in: (\S+) -->", text)
    if elsewhere:
        skipped += text.count("\n```cpp")
        if not (root / elsewhere[1]).exists():
            wrong.append(f"{name}: there is no {elsewhere[1]}")
        continue
    for found in BLOCK.finditer(text):
        line, mark, code = text.count("\n", 0, found.start("code")) + 1, found["mark"] or "", found["code"]
        at = f'#line {line} "{name}"\n'
        if re.fullmatch(r"not compiled: .+", mark):
            skipped += 1
        elif mark not in ("", "compile: declarations", "compile: in an actor", "program: alone"):
            wrong.append(f"{name}:{line}: a comment before a block says '{mark}'; {pathlib.Path(__file__).name} lists what it may say")
        elif "int main(" in code:
            programs += 1
        else:
            code = re.sub(r"^#include (.*)\n", "\n", code, flags=re.M)  # the prelude has them all
            if mark != "compile: declarations":
                waits = "co_await" in re.sub(r"//.*", "", code)
                code = f"{'Task<void>' if waits else 'void'} block_{line}() {{\n{at}{code}}}\n"
            if mark == "compile: in an actor":
                code = f"struct Actor_{line} : Actor {{\n{code}}};\n"
            page = re.sub(r"\W", "_", path.stem)
            fragments.append(f"namespace docs::page_{page} {{\n{at}{code}}}\n")


def compile_text(text):
    with tempfile.NamedTemporaryFile("w", suffix=".cpp") as file:
        file.write(text)
        file.flush()
        run = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wno-unused", "-Wno-missing-field-initializers",
                              "-Wno-missing-declarations", "-Wno-deprecated-declarations", "-Wno-main", "-Werror", f"-isystem{include}",
                              f"-I{root}/tests", *flags, file.name], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    return run.stderr if run.returncode else ""


# Most of the time goes into the headers: two units.
half = (len(fragments) + 1) // 2
units = ['#include "docs_prelude.h"\n' + "".join(part) for part in (fragments[:half], fragments[half:])]
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    wrong += [text for text in pool.map(compile_text, units) if text]
print(*wrong, f"docs-blocks: {len(fragments)} fragments compiled, {programs} programs and {skipped} blocks are not compiled here", sep="\n")
sys.exit(bool(wrong))
