#!/usr/bin/env python3
"""What editors and type checkers read of the package: .pyi files for what is made from the catalog when it is imported.

    stubs.py PACKAGE   writes them into the folder of the package, which can be imported
"""
import inspect
import pathlib
import sys

sys.path[0] = str(pathlib.Path(sys.argv[1]).parent)  # the built package, not the sources beside this file
import troupe
from troupe import _catalog, _core, _extras, nn, ops, optim
from troupe.nn import _layers

HEAD = "# Written by python/stubs.py from the catalog.\n"
BUILTINS = "from builtins import bool as _bool, float as _float, int as _int, str as _str"
TYPES = {
    "tensor": "Tensor", "int64": "_int", "double": "_float", "bool": "_bool", "string": "_str", "dtype": "_dtype | _str",
    "number": "_float", "any value": "Any", "tensor or number": "Tensor | _float", "list of tensor": "Sequence[Tensor]",
    "list of int64": "_int | Sequence[_int]", "list of double": "_float | Sequence[_float]", "list of string": "Sequence[_str]",
    "list of any value": "Sequence[Any]", "int64 or list of 2": "_int | Sequence[_int]",
    "struct of tuple (tensor, tensor)": "ValuesAndIndices",
}
REMOTE = """
class Actor:
    worker: _str
    type: _str
    def __call__(self, *args: Any, **kwargs: Any) -> Future: ...
    def __getattr__(self, name: _str) -> Callable[..., Future]: ...
    def state_dict(self) -> dict[_str, Tensor]: ...
    def load_state_dict(self, state: Any) -> None: ...
    def train(self, mode: _bool = True) -> None: ...
    def eval(self) -> None: ...
    def set_name(self, name: _str) -> None: ...

class Future:
    def result(self, timeout: _float | None = None) -> Any: ...
    def done(self) -> _bool: ...
    def cancel(self) -> None: ...
    def __await__(self) -> Generator[Any, None, Any]: ...

class Step:
    open: _bool
    def backward(self, loss: Any, gradient: Any = None, retain_graph: _bool = False, create_graph: _bool = False) -> None: ...
    def grad(self, outputs: Any, inputs: Any = None, weights: Any = None, retain_graph: _bool = False, create_graph: _bool = False) -> Any: ...
    def close(self) -> None: ...
"""
NOT_ARGUMENTS = {"in": "in_features", "out": "out_features"}


def type_of(text):
    """A type of the catalog as Python's."""
    if text.startswith("optional "):
        return type_of(text[9:]) + " | None"
    return TYPES.get(text, "Any")


def parameter(p):
    name, kind, standard, has = p
    text = "%s: %s" % (NOT_ARGUMENTS.get(name, name), type_of(kind))
    if not has:
        return text
    if standard is None and "None" not in text:
        text += " | None"
    return text + " = " + (repr(standard) if isinstance(standard, (bool, int, str, type(None))) or
                           isinstance(standard, float) and standard == standard else "...")


def signature(entry, first=""):
    parameters = list(entry.parameters)
    if first:
        parameters = parameters[1:]
    ordered = [p for p in parameters if not p[3]] + [p for p in parameters if p[3]]
    return ", ".join([first] * bool(first) + [parameter(p) for p in ordered])


def result(entry):
    kind = entry.result
    if entry.name in _catalog._PAIRS and kind in ("any value", "tensor"):
        return "Any" if kind == "any value" else "ValuesAndIndices"
    return "list[Tensor]" if kind == "list of tensor" else type_of(kind) if kind else "None"


def described(lines, indent, head, text):
    lines.append("%sdef %s:\n%s    \"\"\"%s\"\"\"\n" % (indent, head, indent, text.replace("\\", "\\\\")))


def ops_text():
    lines = [HEAD, BUILTINS + "\nfrom typing import Any, Sequence\nfrom ._catalog import ValuesAndIndices\nfrom ._core import Tensor, _dtype\n"]
    for name, e in sorted(ops._KNOWN.items()):
        sizes = name in ("zeros", "ones", "rand", "randn")
        head = "*size: Any, dtype: _dtype | _str | None = None" if sizes else signature(e)
        if name in ops._MAKE_NEW:
            head += ("" if sizes else ", *") + ", device: Any = None, requires_grad: _bool = False"
        described(lines, "", "%s(%s) -> %s" % (name, head.lstrip(", "), result(e)), e.text)
    return "\n".join(lines)


def plain(function):
    try:
        return str(inspect.signature(function)).replace("(self", "(self: Any")
    except (TypeError, ValueError):
        return "(*args: Any, **kwargs: Any)"


def core_text():
    lines = [HEAD, BUILTINS + "\nfrom typing import Any, Callable, Generator, Iterator, Sequence\nfrom ._catalog import ValuesAndIndices\n"]
    lines.append("class dtype:\n    name: _str\n    itemsize: _int\n    is_floating_point: _bool\n\n_dtype = dtype\n")
    lines.append("class device:\n    type: _str\n    def __init__(self, text: _str) -> None: ...\n")
    lines += ["%s: dtype" % name for name in ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool")]
    lines.append("\nclass Tensor:")
    properties = {"shape": "tuple[_int, ...]", "dtype": "_dtype", "device": "Any", "ndim": "_int", "nbytes": "_int",
                  "requires_grad": "_bool", "grad": "Tensor | None", "is_leaf": "_bool", "T": "Tensor", "mT": "Tensor", "data": "Tensor"}
    lines += ["    %s: %s" % p for p in properties.items()]
    for op in "add radd sub rsub mul rmul truediv rtruediv pow rpow mod floordiv matmul and or xor iadd isub imul itruediv lt le gt ge".split():
        lines.append("    def __%s__(self, other: Any) -> Tensor: ..." % op)
    lines += ["    def __getitem__(self, index: Any) -> Tensor: ...", "    def __setitem__(self, index: Any, value: Any) -> None: ...",
              "    def __iter__(self) -> Iterator[Tensor]: ...", "    def __neg__(self) -> Tensor: ...", "    def __len__(self) -> _int: ..."]
    own = {"item": "(self) -> Any", "tolist": "(self) -> Any", "numpy": "(self) -> Any", "detach": "(self) -> Tensor", "dim": "(self) -> _int",
           "numel": "(self) -> _int", "backward": "(self, gradient: Any = None, retain_graph: Any = False, create_graph: Any = False) -> None",
           "requires_grad_": "(self, requires_grad: Any = True) -> Tensor", "size": "(self, dim: _int | None = None) -> Any",
           "to": "(self, *args: Any, dtype: Any = None, device: Any = None) -> Tensor", "stride": "(self, *dim: _int) -> Any",
           "register_hook": "(self, hook: Callable[[Tensor], Any]) -> Any", "is_contiguous": "(self) -> Any"}
    for name, text in own.items():
        described(lines, "    ", name + text, (getattr(troupe.Tensor, name).__doc__ or name).strip().splitlines()[-1])
    for name, e in sorted(ops._KNOWN.items()):
        if name not in ops._MAKE_NEW and name not in own and name not in properties and name != "float":
            shaped = name in ("view", "reshape", "permute", "expand", "repeat", "tile", "flip")
            head = "self, *sizes: Any" if shaped else signature(e, "self")
            described(lines, "    ", "%s(%s) -> %s" % (name, head, result(e)), e.text)
    lines += ["    def %s(self) -> Tensor: ..." % n for n in ("float", "double", "half", "long", "int", "bool", "bfloat16", "cpu")]
    lines.append(REMOTE)
    lines.append("def __getattr__(name: _str) -> Any: ...\n")
    return "\n".join(lines)


def classes_text(known, base, make):
    lines = []
    for name, e in known:
        lines.append("class %s(%s):\n    \"\"\"%s\"\"\"\n    def __init__(self, %s) -> None: ...\n" % (name, base, e.text.replace("\\", "\\\\"), make(e)))
    return lines


def nn_text():
    lines = [HEAD, BUILTINS + "\nfrom typing import Any, Sequence\nfrom .._core import _dtype\nfrom . import functional as functional, init as init, utils as utils\n"
             "from ._layers import Sequential as Sequential, _Layer\n"
             "from ._module import Module as Module, ModuleDict as ModuleDict, ModuleList as ModuleList, Parameter as Parameter\n"]
    known = [(_layers.class_name(n), e) for n, e in sorted(_catalog.section("nn").items()) if n != "sequential"]
    lines += classes_text(known, "_Layer", lambda e: ", ".join(filter(None, (signature(e), "**kwargs: Any"))))
    lines += ["class %s(Module):\n    def __init__(self, **options: Any) -> None: ...\n" % n for n in sorted(nn._losses.losses())]
    return "\n".join(lines)


def optim_text():
    lines = [HEAD, BUILTINS + "\nfrom typing import Any\nfrom . import lr_scheduler as lr_scheduler\n\nclass Optimizer:"]
    for name, f in sorted(vars(optim.Optimizer).items()):
        if name == "param_groups":
            lines.append("    param_groups: list[dict[_str, Any]]")
        elif callable(f) and not name.startswith("_"):
            described(lines, "    ", name + plain(f).replace("self: Any", "self") + " -> Any", f.__doc__)
    known = [(optim._NAMES.get(n, n.capitalize()), e) for n, e in sorted(_catalog.section("optim", "Optimizers").items())]
    lines += classes_text(known, "Optimizer", lambda e: "params: Any, " + ", ".join(filter(None, (signature(e), "**kwargs: Any"))))
    lines.append("def step_all(optimizers: Any) -> None: ...\n")
    lines.append("def clip_grad_norm(optimizers: Any, max_norm: _float) -> _float: ...\n")
    return "\n".join(lines)


def package_text():
    lines = [HEAD, "from typing import Any"]
    from_files = {}
    for name, value in sorted(vars(troupe).items()):
        if name.startswith("_") or name in ops._KNOWN or inspect.ismodule(value) or name in _extras._FUNCTIONS and name != "as_tensor":
            continue
        module = getattr(value, "__module__", "") or ""
        place = {"troupe": "_core"}.get(module, module.rpartition(".")[2])
        if place:
            from_files.setdefault(place, []).append(name)
    lines += ["from .%s import %s" % (place, ", ".join("%s as %s" % (n, n) for n in names)) for place, names in sorted(from_files.items())
              if place not in ("builtins",)]
    lines.append("from . import data as data, llm as llm, nn as nn, ops as ops, optim as optim\nfrom .ops import *")
    lines += ["%s: Any" % n for n in sorted(_extras._FUNCTIONS) if n != "as_tensor" and n not in ops._KNOWN]
    return "\n".join(lines) + "\n"


def functional_text():
    return HEAD + "from ..ops import *\n"


FILES = {"nn/functional.pyi": functional_text, "ops.pyi": ops_text, "_core.pyi": core_text, "nn/__init__.pyi": nn_text, "optim/__init__.pyi": optim_text,
         "__init__.pyi": package_text}

if __name__ == "__main__":
    for name, text in FILES.items():
        (pathlib.Path(sys.argv[1]) / name).write_text(text())
