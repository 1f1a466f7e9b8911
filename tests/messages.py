#!/usr/bin/env python3
"""Checks that every message between workers is declared (actors/worker/service.h, common_method.h), and that docs/explanation/messages.md has the
table of all, as the declarations and the sentences above them say: who sends it to whom, when, with what, and what it is answered with.

    messages.py           prints what is wrong; exit code 1 if anything is
    messages.py --write   writes the table
"""
import pathlib, re, sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/explanation/messages.md"
BEGIN, END = "<!-- messages: tests/messages.py --write -->\n", "<!-- end of messages -->\n"
FOLDERS = ("core", "ops", "net", "autograd", "actors", "nn", "optim", "data", "rref", "collective", "parallel", "llm", "script", "troupe", "tools")
FRAME = re.compile(r"actors/worker/(service|common_method|worker\w*)\.(h|cpp)")  # where messages have no types yet
BY_HAND = re.compile(r"\b(add_service|add_actor_method|call_service)\s*\(|\bmethod_id\(\"")
DECLARED = re.compile(r"((?:^[ ]*///[^\n]*\n)+)(?:inline )?constexpr (?:\w+::)*(Service|CommonMethod)<", re.M)
GUESTS = "actors/worker/guests.h"  # what guests may call, by lists
OPEN = {"kOpenToGuests": "open to guests", "kOpenToControl": "open to guests for control"}
ANY = re.compile(r"^(?:inline )?constexpr (?:\w+::)*(?:Service|CommonMethod)<", re.M)


def closing(text, at):
    """Position of the bracket that closes the one at `at`."""
    depth, pairs = 0, {"<": ">", "(": ")", "{": "}"}
    for i in range(at, len(text)):
        if text[i] == text[at]:
            depth += 1
        elif text[i] == pairs[text[at]]:
            depth -= 1
            if not depth:
                return i
    raise ValueError("no closing bracket")


def signature(type_, text):
    """(result, parameters) of a function type, or of the name of one that the file declares."""
    if alias := re.search(r"^using %s = ([^;]*);" % re.escape(type_), text, re.M):
        type_ = alias[1]
    open_ = type_.index("(")
    result, inside = type_[:open_].strip(), type_[open_ + 1:closing(type_, open_)]
    parameters, part, depth = [], "", 0
    for c in inside + ",":
        depth += (c in "<(") - (c in ">)")
        if c == "," and not depth:
            parameters.append(part.strip())
            part = ""
        else:
            part += c
    plain = lambda s: re.sub(r"\s+", " ", s).replace("std::", "")
    return plain(result), [plain(p) for p in parameters if p]


def open_to_guests(root):
    """The names that the file lists, and what the table says of them."""
    said = {}
    for list_, words in OPEN.items():
        found = re.search(r"array<std::string_view, (\d+)> %s = \{([^}]*)\}" % list_, (root / GUESTS).read_text())
        names = re.findall(r'"([^"]*)"', found[2])
        if len(names) != int(found[1]):
            sys.exit(f"{GUESTS}: {list_} has {found[1]} places for {len(names)} names")
        for name in names:
            if said.setdefault(name, words) != words:
                sys.exit(f"{GUESTS}: {name} stands in both lists")
    return said


def declarations(root):
    """Yields (place, wrong) or (place, row, what it is sent as)."""
    guests = open_to_guests(root)
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            path = file.relative_to(root).as_posix()
            if file.suffix not in (".h", ".cpp"):
                continue
            text = file.read_text()
            if not FRAME.fullmatch(path):
                for found in BY_HAND.finditer(text):
                    yield f"{path}:{text.count(chr(10), 0, found.start()) + 1}", "a message that is not declared: Service and CommonMethod are for all"
            described = [m.end() for m in DECLARED.finditer(text)]
            for found in ANY.finditer(text):
                if found.end() not in described:
                    yield f"{path}:{text.count(chr(10), 0, found.start()) + 1}", "a message without a sentence above it: /// Sender to receiver: when."
            for found in DECLARED.finditer(text):
                place = f"{path}:{text.count(chr(10), 0, found.end()) + 1}"
                words = re.sub(r"\s*\n\s*///\s*", " ", found[1].strip().removeprefix("///")).strip()
                who, _, when = words.partition(": ")
                if not when or " to " not in who:
                    yield place, f"'{words}' does not say who sends the message to whom, and when: /// Sender to receiver: when."
                    continue
                close = closing(text, found.end() - 1)
                result, carried = signature(text[found.end():close], text)
                open_ = text.index("{", close)
                inside = text[open_ + 1:closing(text, open_)]
                name = re.match(r'\s*"([^"]+)"', inside)[1]
                options = inside[inside.index('"', inside.index('"') + 1) + 1:].strip(", \n")
                if options and not options.startswith("{"):
                    options = re.search(r"MessageOptions %s\{([^}]*)\}" % re.escape(options), text)[1]
                how = ["to an actor"] if found[2] == "CommonMethod" else []
                how += ["in the caller's context"] if "in_context" in options or found[2] == "CommonMethod" else []
                how += ["no deadline"] if "timeout = Duration(0)" in options else []
                how += ["handled although its caller gives up"] if "detached" in options else []
                how += ["also without its contents"] if "takes_unplaced" in options else []
                how += [guests[name]] if name in guests and found[2] == "Service" else []
                carried = f"`{', '.join(carried)}`" if carried else ""
                answer = "" if result == "void" else f"`{result}`"
                yield place, f"| `{name}` | {who} | {when} | {carried} | {answer} | {', '.join(how)} |", (name, carried, answer)


def main():
    wrong, rows, sent_as = [], [], {}
    for place, said, *message in declarations(ROOT):
        if not message:
            wrong.append(f"{place}: {said}")
            continue
        rows.append(said)
        name, *contents = message[0]
        if sent_as.setdefault(name, contents) != contents:
            wrong.append(f"{place}: {name} is declared twice, with different contents")
    for name in open_to_guests(ROOT):
        if name not in sent_as:
            wrong.append(f"{GUESTS}: {name} is open to guests, and no message is declared so")
    table = "| message | from, to | when | carries | answer | how |\n|---|---|---|---|---|---|\n" + "".join(f"{r}\n" for r in sorted(rows))
    page = PAGE.read_text()
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        wrong.append(f"docs/explanation/messages.md has no place for the table of messages: two lines, {BEGIN.strip()} and {END.strip()}")
    elif "--write" in sys.argv:
        PAGE.write_text(before + BEGIN + table + END + after)
    elif before + BEGIN + table + END + after != page:
        wrong.append("docs/explanation/messages.md: the table of messages is not what the declarations say: python3 tests/messages.py --write")
    print("".join(f"{w}\n" for w in wrong) + f"{len(rows)} messages")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
