#!/usr/bin/env python3
"""What PyTorch promotes: writes promotion.json beside this file.

    python3 make_promotion.py

{"torch", "dtypes", "codes", "numbers", "a", "b", "binary", "unary"}. Operands: "a" and "b" by dtype, one-dimensional; of a 0-d tensor
the first element; "numbers" are a bool, an integer and a floating one. A result's dtype is a letter of "codes", in the order of
"dtypes"; "-" means that PyTorch refuses.
- binary: {operator: {kinds: letters, "values": [[...]]}}. Kinds are two of d (dimensioned), z (0-d) and n (number): letters for all
  pairs, the second operand running faster. "values" are the results of kinds "dd"; null where refused.
- unary: {operator: {"d": letters, "values"}} of "a".
"""
import json, math, pathlib, warnings
import torch

warnings.filterwarnings("ignore")
DTYPES = {"float32": "f", "float64": "d", "int64": "l", "bool": "b", "bfloat16": "g", "float16": "h", "int32": "i", "uint8": "u"}
CODES = {getattr(torch, name): code for name, code in DTYPES.items()}
NUMBERS = [True, 2, 1.5]
F = torch.nn.functional


def operand(name, values):
    dtype = getattr(torch, name)
    if name == "uint8":
        values = [v % 256 for v in values]
    return torch.tensor([bool(v) for v in values] if name == "bool" else values, dtype=dtype)


A = {n: operand(n, [3, 0, -2, 5]) for n in DTYPES}
B = {n: operand(n, [2, -3, 1, 2]) for n in DTYPES}
MASK = torch.tensor([True, False, True, False])
WITH_NUMBERS = "add sub mul div pow floor_divide remainder".split()
NUMBER_LAST = "fmod eq ne lt le gt ge".split()
BINARY = {n: getattr(torch, n) for n in WITH_NUMBERS + NUMBER_LAST + "maximum minimum atan2".split()}
BINARY |= {
    "where": lambda a, b: torch.where(MASK, a, b),
    "cat": lambda a, b: torch.cat([a, b]),
    "stack": lambda a, b: torch.stack([a, b]),
    "mse_loss": lambda a, b: F.mse_loss(a, b),
    "l1_loss": lambda a, b: F.l1_loss(a, b),
    "smooth_l1_loss": lambda a, b: F.smooth_l1_loss(a, b),
    "huber_loss": lambda a, b: F.huber_loss(a, b),
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "matmul": torch.matmul,
}
# ruff: noqa: E731
OPERATORS = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b, "pow": lambda a, b: a**b,
             "floor_divide": lambda a, b: a // b, "remainder": lambda a, b: a % b}
UNARY = {n: getattr(torch, n) for n in """neg abs square sign floor ceil round trunc exp expm1 log log1p log2 sqrt rsqrt reciprocal sin cos erf tanh
    sigmoid relu sum prod mean amax amin any all isnan isfinite logical_not""".split()}
UNARY |= {"var": lambda x: x.var(), "std": lambda x: x.std(), "norm": lambda x: x.norm(), "cumsum": lambda x: x.cumsum(0), "argmax": lambda x: x.argmax(0),
          "argmin": lambda x: x.argmin(0), "logsumexp": lambda x: x.logsumexp(0), "softmax": lambda x: x.softmax(0), "log_softmax": lambda x: x.log_softmax(0),
          "gelu": F.gelu, "silu": F.silu, "softplus": F.softplus, "leaky_relu": F.leaky_relu, "elu": F.elu,
          "clamp 0 4": lambda x: x.clamp(0, 4), "clamp 0.5": lambda x: x.clamp(0.5), "masked_fill 1": lambda x: x.masked_fill(MASK, 1),
          "masked_fill 0.5": lambda x: x.masked_fill(MASK, 0.5)}


def attempt(f, *operands):
    try:
        return f(*operands)
    except (RuntimeError, TypeError, NotImplementedError):
        return None


def values(t):
    return t if t is None else [v if not isinstance(v, float) or math.isfinite(v) else str(v) for v in t.flatten().tolist()]


def letters(results):
    return "".join("-" if r is None else CODES[r.dtype] for r in results)


binary, unary = {}, {}
for name, f in BINARY.items():
    kinds = ["dd", "dz", "zd", "zz"]
    if name in ("cat", "matmul") or "loss" in name:
        kinds = ["dd"]
    elif name == "stack":
        kinds = ["dd", "zz"]
    elif name in WITH_NUMBERS or name == "where":
        kinds += ["dn", "nd", "zn", "nz"]
    elif name in NUMBER_LAST:
        kinds += ["dn", "zn"]
    entry = {}
    for kind in kinds:
        sides = [{"d": list(tensors.values()), "z": [t[0] for t in tensors.values()], "n": NUMBERS}[k] for k, tensors in zip(kind, (A, B))]
        g = OPERATORS.get(name, f) if "n" in kind else f
        results = [attempt(g, a, b) for a in sides[0] for b in sides[1]]
        entry[kind] = letters(results)
        if kind == "dd":
            entry["values"] = [values(r) for r in results]
    binary[name] = entry
for name, f in UNARY.items():
    results = [attempt(f, a) for a in A.values()]
    unary[name] = {"d": letters(results), "values": [values(r) for r in results]}

out = {"torch": torch.__version__, "dtypes": list(DTYPES), "codes": "".join(DTYPES.values()), "numbers": NUMBERS, "a": {n: values(t) for n, t in A.items()},
       "b": {n: values(t) for n, t in B.items()}, "binary": binary, "unary": unary}
text = json.dumps(out).replace('}, "', '},\n"')
(pathlib.Path(__file__).parent / "promotion.json").write_text(text + "\n")
