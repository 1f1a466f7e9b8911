#!/usr/bin/env python3
"""What pages and sources name is there: links and anchors, files, headers, flags, variables, C++ names, the texts of errors.

    docs_names.py [ROOT]        prints what is missing as file:line; exit code 1 if anything is
    docs_names.py --self-test   plants one fault of each kind and checks that it is found

CONTRIBUTING.md answers in three lines each where the things of ANSWERS are added: by files, names that are in the code, and a test.
"""
import pathlib, re, sys, tempfile

SOURCES = {".h", ".cpp", ".cu", ".cuh", ".capnp", ".py", ".cmake", ".txt", ".lua", ".sh", ".yml", ""}
HISTORY = "CHANGELOG.md"  # says what there was
VARIABLES = "docs/reference/environment.md"
OF_TESTS = "TROUPE_TEST_"  # set by tests for programs of theirs
# Flags of other programs that pages show.
FOREIGN = set("""--build --preset --prefix --test-dir --fresh --output-on-failure --standalone --nnodes
--node-rank --master-addr --master-port --ntasks --ntasks-per-node --nodes --export --host --rm --shm-size --network --env --cpus
--cpus-per-task --time --hostfile --parallel --restart --tool --nproc_per_node --node_rank --master_addr --master_port --no_python
--oversubscribe --redirects --signal --tee""".split())
ANSWERS = ("A collective", "A way of cutting layers", "A kind of message", "A flag of `troupe run`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SPAN = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"(?<![\w./<~$*-])((?:[\w-]+/)+[\w.-]+\.(?:h|cpp|cu|py|md|lua|json|cmake|capnp|sh|svg|txt))(?![\w*])")
BUILT = re.compile(r"(build|other|~|\$\w+)/|generated/")  # what commands make


def anchors(text):
    """As GitHub makes them of headings."""
    found, code = set(), False
    for line in text.splitlines():
        code ^= line.startswith("```")
        if not code and (heading := re.match(r"#+ (.*)", line)):
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "")
            slug, n = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-"), 0
            while (slug if n == 0 else f"{slug}-{n}") in found:
                n += 1
            found.add(slug if n == 0 else f"{slug}-{n}")
    return found


def files(root):
    for entry in sorted(root.iterdir()):
        if entry.name in ("build", "shared") or entry.name.startswith("."):
            continue
        yield from (f for f in sorted(entry.rglob("*")) if f.is_file()) if entry.is_dir() else (entry,)


def literals(text):
    """All string literals of a source, those that stand side by side joined; what is filled in is a space."""
    joined = re.sub(r'"\s*\n?\s*"', "", text)
    return re.sub(r"\{[^{}]*\}|\\.", " ", " ".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', joined)))


def unanswered(text, sources):
    """What is wrong with the answers of CONTRIBUTING.md; that its files exist, faults() looks at."""
    words = set(re.findall(r"\w+", " ".join(code for name, code in sources.items() if name.endswith((".h", ".cpp")))))
    for thing in ANSWERS:
        answer = next((part for part in text.split("\n\n") if part.startswith(thing + ":")), "")
        if not 1 <= len(answer.strip().splitlines()) <= 3:
            yield f'the answer "{thing}: ..." has to be there, in three lines at most'
            continue
        tests = [code for name, code in sources.items() if name.startswith("tests/") and name in answer]
        if not any("TEST_CASE" in code or code.startswith("#!") for code in tests):
            yield f'"{thing}: ..." names no test'
        for span in SPAN.findall(answer):
            for name in re.findall(r"\b[A-Z]\w*[a-z]\w*\b|\b\w+(?=\(\))", span) if "/" not in span else ():
                if name not in words:
                    yield f'"{thing}: ..." says {name}, which is not in the code'


def faults(root):
    texts = {}
    for file in files(root):
        if file.suffix in SOURCES | {".md"}:
            texts[file.relative_to(root).as_posix()] = file.read_text(errors="replace")
    pages = {name: text for name, text in texts.items() if name.endswith(".md")}
    guides = {name: text for name, text in pages.items() if name == "README.md" or name.startswith("docs/")}
    sources = {name: text for name, text in texts.items() if name not in pages}
    every = {f.relative_to(root).as_posix() for f in files(root)}
    headers = {re.sub("^troupe/", "", name) for name in every if name.endswith(".h")}
    words = set(re.findall(r"\w+", " ".join(text for name, text in sources.items() if name.endswith((".h", ".lua")))))
    flags = FOREIGN | set(re.findall(r"--[a-z][a-z0-9_-]+", " ".join(text for name, text in sources.items()
                                                                    if name != "tests/docs_names.py")))
    spoken = " ".join(re.findall(r"\w+", " ".join(literals(text) for name, text in sources.items() if name.endswith((".h", ".cpp")))))
    known_anchors = {name: anchors(text) for name, text in pages.items()}
    found = []

    def there(path, near):
        return any(p in every for p in (path, f"{near}/{path}", f"tests/{path}"))

    for name, text in pages.items():
        if name == HISTORY:
            continue
        near = name.rpartition("/")[0]
        code = False
        for number, line in enumerate(text.splitlines(), 1):
            at = f"{name}:{number}:"
            code ^= line.startswith("```")
            for target in [] if code else LINK.findall(SPAN.sub("", line)):
                if re.match(r"https?:|mailto:", target):
                    continue
                path, _, anchor = target.partition("#")
                full = name if not path else (pathlib.PurePosixPath(near) / path).as_posix()
                parts = []
                for part in full.split("/"):
                    parts = parts[:-1] if part == ".." else parts + [part]
                full = "/".join(p for p in parts if p != ".")
                if full not in every and not (root / full).is_dir():
                    found.append(f"{at} the link {target} leads nowhere")
                elif anchor and anchor not in known_anchors.get(full, ()):
                    found.append(f"{at} {full} has no heading #{anchor}")
            for path in PATH.findall(LINK.sub("", line)):
                if not BUILT.match(path) and not there(path, near) and not (path.startswith("troupe/") and path[7:] in headers):
                    found.append(f"{at} there is no {path}")
            for header in re.findall(r"<troupe/([\w/.-]+)>", line):
                if header not in headers:
                    found.append(f"{at} no header is installed as <troupe/{header}>")
            if name not in guides:
                continue
            for flag in re.findall(r"(?<![\w-])--[a-z][a-z0-9_-]+", line):
                if flag not in flags:
                    found.append(f"{at} nothing has the flag {flag}")
            for quoted in re.findall(r'"([^"`]{8,})"', SPAN.sub("", line).split("|")[1]) if line.startswith("| ") and not code else []:
                run = re.findall(r"\w+", quoted)  # what a reader has seen, in the first column of "If it fails"
                threes = [" ".join(run[i:i + 3]) for i in range(len(run) - 2)]
                if threes and not any(three in spoken for three in threes):
                    found.append(f'{at} no source says "{quoted}"')
            for span in SPAN.findall(line):
                for owner, last in re.findall(r"\b([a-z]\w*(?:::\w+)*)::(\w+)", span):
                    if owner.split("::")[0] in ("troupe", "nn", "optim", "ops", "autograd", "datasets", "parallel", "tools", "internal", "this_call"):
                        if last not in words:
                            found.append(f"{at} no header has {owner}::{last}")
        inside = ""
        for number, line in enumerate(text.splitlines(), 1):
            if name in guides and line.startswith("```"):
                inside = "" if inside else line[3:] or "none"
            elif inside == "text" and (said := re.search(r"(?:^|error: |prompt:\d+: )\[([a-z_]+)\] (.*)", line)):
                run = re.findall(r"\w+", said[2])
                threes = [" ".join(run[i:i + 3]) for i in range(len(run) - 2)]
                if threes and sum(three in spoken for three in threes) * 6 < len(threes):
                    found.append(f"{name}:{number}: no source says this: {line}")

    for name, text in sources.items():
        if name == "tests/docs_names.py":
            continue
        for number, line in enumerate(text.splitlines(), 1):
            for path, anchor in re.findall(r"(?<![\w/])(docs/[\w/.-]+\.md)(?:#([\w-]+))?", line):
                if path not in pages:
                    found.append(f"{name}:{number}: there is no {path}")
                elif anchor and anchor not in known_anchors[path]:
                    found.append(f"{name}:{number}: {path} has no heading #{anchor}")

    if "CONTRIBUTING.md" in pages:
        found += [f"CONTRIBUTING.md: {what}" for what in unanswered(pages["CONTRIBUTING.md"], sources)]

    # Variables: what the code asks for is in the reference, and what pages name is asked for somewhere.
    asked = set()
    for name, text in sources.items():
        if name.endswith((".h", ".cpp", ".cu")) and not name.startswith(("bench/", "examples/")):
            asked |= set(re.findall(r'"(TROUPE_[A-Z_]+)"', text))
    reference = pages.get(VARIABLES)
    if reference is not None:
        found += [f"{VARIABLES}: the code asks for {v}, which is not here" for v in sorted(asked) if v not in reference and not v.startswith(OF_TESTS)]
    known = set(re.findall(r"TROUPE_[A-Z_]+", " ".join(sources.values())))
    for name, text in guides.items():
        found += [f"{name}: nothing knows {v}" for v in sorted(set(re.findall(r"\bTROUPE_[A-Z_]*[A-Z]\b", text)) - known)]

    # Every page is two links from the README.
    def linked(name):
        near = pathlib.PurePosixPath(name).parent
        for target in LINK.findall(pages.get(name, "")):
            path = target.partition("#")[0]
            if path and not re.match(r"https?:", path):
                parts = []
                for part in (near / path).as_posix().split("/"):
                    parts = parts[:-1] if part == ".." else parts + [part]
                yield "/".join(parts)
    near = set(linked("README.md"))
    reached = near | {page for first in near for page in linked(first)}
    if site := sources.get("tools/site/mkdocs.yml"):
        listed = {f"docs/{page}" for page in re.findall(r"^ +- (\S+\.md)$", site, re.M)}
        found += [f"tools/site/mkdocs.yml: there is no {page}" for page in sorted(listed - set(pages))]
        found += [f"tools/site/mkdocs.yml: {page} is not in its nav" for page in sorted(p for p in guides if p.startswith("docs/") and p not in listed)]
    found += [f"{name}: it is more than two links from the README" for name in sorted(guides) if name.startswith("docs/") and name not in reached]
    return found


GOOD = {
    "README.md": "[a](docs/a.md#the-end) `core/a.h`, `nn::Linear`, `--keep`, `TROUPE_LOG`\n",
    "docs/a.md": "# A\n## The end\n[b](b.md)\n```text\n[op] got a wrong number of 3\n```\n",
    "docs/b.md": "# B\n",
    VARIABLES: "`TROUPE_LOG`\n",
    "tools/site/mkdocs.yml": "nav:\n  - a.md\n  - b.md\n  - reference/environment.md\n",
    "CONTRIBUTING.md": "\n\n".join(f"{thing}: `Linear` in `core/a.h`; tests/a_test.cpp" for thing in ANSWERS) + "\n",
    "tests/a_test.cpp": 'TEST_CASE("a")\n',
    "core/a.h": 'struct Linear;  // docs/a.md\nfail("[op] got a wrong "\n     "number of {}");\nget("TROUPE_LOG"); // --keep\n',
}
BAD = {
    "README.md": ["[x](docs/x.md)\n", "[x](docs/a.md#x)\n", "`core/x.h`\n", "`<troupe/x.h>`\n", "`--lose`\n", "`nn::Nonlinear`\n", "`TROUPE_NOTHING`\n", '| "said by nobody at all" | x |\n'],
    "docs/a.md": ["```text\n[op] wrote another text than this one\n```\n"],
    "tools/site/mkdocs.yml": ["  - x.md\n"],
    "core/a.h": ["// docs/x.md\n", "// docs/a.md#x\n", 'get("TROUPE_NEW");\n'],
    "docs/c.md": ["# C\n"],
}
# An answer that is not there, is too long, names what is not in the code, or no test.
BAD_ANSWERS = [("A collective:", "Collectives:"), ("A collective: ", "A collective: \n\n"), ("A collective: ", "A collective: a\nb\nc\n"),
               ("A collective: `Linear`", "A collective: `Nonlinear`"), ("core/a.h`; tests/a_test.cpp", "core/a.h`")]


def self_test():
    def of(tree):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in tree.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return faults(root)
    good = GOOD | {"README.md": GOOD["README.md"] + f"[v]({VARIABLES})\n"}
    if found := of(good):
        sys.exit(f"self-test: found in vain {found}")
    for name, lines in BAD.items():
        for line in lines:
            expected = 2 if name == "docs/c.md" else 1  # a new page is neither linked nor in the site's nav
            if len(found := of(good | {name: good.get(name, "") + line})) != expected:
                sys.exit(f"self-test: planted {line!r} in {name}, found {found}")
    for before, after in BAD_ANSWERS:
        if len(found := of(good | {"CONTRIBUTING.md": good["CONTRIBUTING.md"].replace(before, after, 1)})) != 1:
            sys.exit(f"self-test: planted {after!r} for {before!r}, found {found}")
    print("self-test: every planted fault was found, and nothing else")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        sys.exit()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    wrong = faults(root)
    print(*wrong, f"docs-names: {len(wrong)} wrong", sep="\n")
    sys.exit(bool(wrong))
