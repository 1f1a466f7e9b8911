#!/usr/bin/env python3
"""The page of reference of the Python package, from what it defines and the stubs that are made of the catalog.

    reference_test.py --write   writes docs/reference/python.md
    reference_test.py           exit code 1 unless the page is that
"""
import ast
import inspect
import pathlib
import re
import sys

import troupe
import troupe.data
import troupe.llm
import troupe.nn.init
import troupe.nn.utils
import troupe.optim.lr_scheduler
from troupe import _catalog

PACKAGE = pathlib.Path(troupe.__file__).parent
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/reference/python.md"
HEAD = """# Python

What `import troupe` has beside the [operators](operators.md), which are functions of `troupe` and `troupe.nn.functional`, and methods of tensors. Written by `tests/python/reference_test.py --write`; how to begin: [Python](../howto/python.md).
"""


def sentence(thing):
    text = re.sub(r"\s+", " ", inspect.getdoc(thing) or "").strip()
    first = re.split(r"(?<=\.) (?=[A-Z])", text, maxsplit=1)[0]
    return first.replace("|", "\\|")


def signature(thing):
    try:
        return re.sub(r"^\(self(, )?", "(", str(inspect.signature(thing))).replace(" object at 0x", "").replace("|", "\\|")
    except (TypeError, ValueError):
        return "(...)"


def public(module):
    """Functions and classes of Python that the module defines or shows, by name."""
    catalog = set(dir(troupe.ops))
    for name, thing in sorted(vars(module).items()):
        own = getattr(thing, "__module__", "") or ""
        if not name.startswith("_") and own.startswith("troupe") and (inspect.isclass(thing) or inspect.isfunction(thing)) and name not in catalog:
            yield name, thing


def table(title, rows):
    rows = list(rows)
    return [f"## {title}", "", "| | |", "|---|---|", *(f"| `{a}` | {b} |" for a, b in rows), ""] if rows else []


def of_module(module):
    for name, thing in public(module):
        yield name + signature(thing), sentence(thing)
        if not inspect.isclass(thing) or issubclass(thing, BaseException):
            continue
        for method, f in vars(thing).items():
            if not method.startswith("_") and (inspect.isfunction(f) or isinstance(f, (property, classmethod, staticmethod))):
                f = getattr(f, "__func__", f)
                shown = method if isinstance(f, property) else method + signature(f)
                doc = inspect.getdoc(f) or ""
                if doc and not doc.startswith((method + "(", "(self")):  # the catalog's and the binding's own have other pages
                    yield f"{name}.{shown}", sentence(f)


def of_stub(file):
    """Classes that are made from the catalog, with the arguments of their constructors."""
    for node in ast.parse((PACKAGE / file).read_text()).body:
        if isinstance(node, ast.ClassDef):
            for f in node.body:
                if isinstance(f, ast.FunctionDef) and f.name == "__init__":
                    text = ast.unparse(f.args)
                    text = re.sub(r"\b_(int|float|str|bool)\b", r"\1", re.sub(r"^self(, )?", "", text))
                    text = re.sub(r"(, )?\*\*(kwargs|options): Any$", "", text)
                    yield f"{node.name}({text})".replace("|", "\\|"), (ast.get_docstring(node) or "").replace("|", "\\|")


def page():
    text = [HEAD]
    for module in (troupe, troupe.data, troupe.llm):
        text += table(module.__name__, of_module(module))
        if module is troupe.data:
            text += table("Sets and sources in troupe.data", ((e.signature.split(" -> ")[0].replace("|", "\\|"), e.text) for e in _catalog.section("data").values()))
    text += table("troupe.nn", of_stub("nn/__init__.pyi"))
    text += table("troupe.optim", of_stub("optim/__init__.pyi"))
    for module in (troupe.optim.lr_scheduler, troupe.nn.init, troupe.nn.utils):
        text += table(module.__name__, of_module(module))
    return "\n".join(text).rstrip() + "\n"


if "--write" in sys.argv:
    PAGE.write_text(page())
elif sys.version_info[:2] != (3, 11):
    print("test-skipped: the page is written by CPython 3.11, whose words for signatures it has")
elif not PAGE.exists() or PAGE.read_text() != page():
    sys.exit(f"{PAGE} is not what the package has: PYTHONPATH=build/release/python {sys.argv[0]} --write")
