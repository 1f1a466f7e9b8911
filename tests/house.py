#!/usr/bin/env python3
"""What a reader has to hold in mind, counted: long classes and functions, files that include each other, objects that belong to a
thread or are never freed, keys that are strings. The counts may only fall: who lowers one lowers its limit here.

    house.py           checks the counts
    house.py --list    also shows what was counted
"""
import collections, pathlib, re, sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAYERS = ("core", "ops", "autograd", "nn", "optim", "net", "actors", "rref", "collective", "parallel", "data", "llm", "script", "troupe", "tools", "python")
LIMITS = {
    "classes of more than 200 lines": 3,
    "functions of more than 60 lines": 7,
    "pairs of files that include each other": 24,
    "circles of files, of any size": 11,
    "objects of a thread": 25,
    "singletons that are never freed": 12,
    "attachments by string": 0,
    "comments that begin in the middle of a sentence": 961,
}
START = re.compile(r"^(?:template\s*<[^;{]*>\s*)?(?:class|struct)\s+(?:\[\[\w+\]\]\s*)?((?:\w+::)*\w+)(?:\s+final)?\s*(?::[^;{]*)?\{", re.M)


def blank(text):
    """The text with comments and literals as spaces, so that braces count."""
    def same_lines(m):
        return re.sub(r"[^\n]", " ", m.group(0))
    return re.sub(r'^#[^\n]*|//[^\n]*|/\*.*?\*/|R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', same_lines, text, flags=re.S | re.M)


def end_of(text, brace):
    """Behind the brace that closes the one there."""
    depth = 0
    for m in re.compile(r"[{}]").finditer(text, brace):
        depth += 1 if m.group() == "{" else -1
        if not depth:
            return m.end()
    return len(text)


files = {p.relative_to(ROOT).as_posix(): p.read_text() for layer in LAYERS for p in sorted((ROOT / layer).rglob("*"))
         if p.suffix in (".h", ".cpp", ".cu", ".cuh")}
blanked = {path: blank(text) for path, text in files.items()}
found = {what: [] for what in LIMITS}


def lines_of_classes():
    sizes = collections.Counter()
    for path, text in blanked.items():
        folder = path.rsplit("/", 1)[0]
        for m in START.finditer(text):
            sizes[folder, m.group(1)] += text.count("\n", m.start(), end_of(text, m.end() - 1)) + 1
    for (folder, name), size in sizes.items():
        if size > 200:
            found["classes of more than 200 lines"].append((size, f"{folder}: {name}"))


def lines_of_functions():
    """What stands between the last statement or brace and a brace, and has parentheses, is a function's head."""
    for path, text in blanked.items():
        seen = last = 0
        for m in re.finditer(r"[;{}]", text):
            head, last = text[last:m.start()], m.end()
            if m.group() != "{" or m.start() < seen or "(" not in head:
                continue
            head = re.sub(r"(?s)^template\s*<.*?>\s*(?=class|struct|requires|\w)", "", head.strip().rsplit("\n\n", 1)[-1])
            if re.match(r"(?:namespace|class|struct|enum|if|for|while|switch|else|return|CAF_)\b", head) or "=" in head.split("(")[0]:
                continue
            end = seen = end_of(text, m.start())
            size = text.count("\n", m.start() - len(head), end) + 1
            if size > 60:
                found["functions of more than 60 lines"].append((size, f"{path}: {head.splitlines()[0][:90]}"))


def pairs():
    """A header and its .cpp file are one; those that reach each other, in however many steps, are a circle."""
    edges = collections.defaultdict(set)
    for path, text in files.items():
        for other in re.findall(r'^#include "([^"]+)"', text, re.M):
            a, b = path.rsplit(".", 1)[0], other.rsplit(".", 1)[0]
            if a != b and other in files:
                edges[a].add(b)
    for a in sorted(edges):
        for b in sorted(edges[a]):
            if a < b and a in edges[b]:
                found["pairs of files that include each other"].append((1, f"{a}  {b}"))
    reached = {}
    for a in edges:
        reached[a], open_ = set(), [a]
        while open_:
            new = edges.get(open_.pop(), set()) - reached[a]
            reached[a] |= new
            open_ += new
    circles = {tuple(sorted(b for b in reached[a] if a in reached.get(b, ()))) for a in reached if a in reached[a]}
    found["circles of files, of any size"] = [(len(c), "  ".join(c)) for c in circles]


def by_line():
    for path, text in files.items():
        for number, code in enumerate(blanked[path].splitlines(), 1):
            if re.search(r"\bthread_local\b", code):
                found["objects of a thread"].append((1, f"{path}:{number}"))
            if re.search(r"\bstatic\b[^=;]*=\s*\*?\s*new\b|\bstatic\b.*\{\s*\*?new\b", code):
                found["singletons that are never freed"].append((1, f"{path}:{number}"))
            if re.search(r"\battachments\(\)|\bstd::any\b|any_cast<", code):
                found["attachments by string"].append((1, f"{path}:{number}"))


def comments():
    """Those that stand alone in their lines, by their first word: it goes on from something that is not there."""
    middle = re.compile(r"(?:Of|As|And|But|Or|Also|By|With|Which|That|Whose|Where|So that|The same|Those|Else|Such)\b|[a-z]")
    for path, text in files.items():
        before = False
        for number, line in enumerate(text.splitlines(), 1):
            m = re.match(r"\s*///?(?!/)<?\s*(\S.*)", line)
            if m and not before and middle.match(m.group(1)) and not m.group(1).startswith("clang-format"):
                found["comments that begin in the middle of a sentence"].append((1, f"{path}:{number}: {m.group(1)[:70]}"))
            before = bool(re.match(r"\s*//", line))


lines_of_classes(), lines_of_functions(), pairs(), by_line(), comments()
wrong = 0
for what, limit in LIMITS.items():
    n = len(found[what])
    wrong += n > limit
    print(f"{n:7} {what}" + ("" if n == limit else f"; the limit is {limit}: " + ("find another way" if n > limit else "lower it")))
    if "--list" in sys.argv or n > limit:
        for size, where in sorted(found[what], reverse=True):
            print(f"        {size:5} {where}")
print(f"{sum(text.count(chr(10)) for text in files.values()):7} lines")
sys.exit(wrong > 0)
