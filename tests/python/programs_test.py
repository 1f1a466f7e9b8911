"""The random programs of tests/oracle, each statement written in Python: they give what PyTorch gives, or are refused."""
import collections
import json
import math
import pathlib
import unittest

import troupe
import troupe.nn.functional as F

ORACLE = pathlib.Path(__file__).resolve().parents[1] / "oracle"
MOST_REFUSED = {"programs.json": 33, "ties/programs.json": 21}  # statements behind which a program goes no further; they only fall


class Different(Exception):
    pass


def number(x):
    return float(x) if isinstance(x, str) else x


def flat(nested):
    return [e for part in nested for e in flat(part)] if isinstance(nested, list) else [nested]


class Program:
    """One program while it runs."""

    def __init__(self, source):
        self.source, self.live = source, {}
        for leaf in source["leaves"]:
            data = [number(x) for x in leaf["data"]]
            t = troupe.tensor(data, dtype=leaf["dtype"]).reshape(leaf["shape"]).clone().detach()
            self.live[leaf["name"]] = t.requires_grad_() if leaf["requires_grad"] else t

    def argument(self, a):
        if isinstance(a, list):
            return [self.argument(x) for x in a]
        if not isinstance(a, dict):
            return a
        (kind, value), = a.items()
        if kind == "t":
            return self.live[value]
        if kind == "slice":
            return slice(*value)
        return {"ellipsis": Ellipsis, "none": None}.get(kind, value)

    def run(self, s):
        args = [self.argument(a) for a in s["args"]]
        kwargs = {k: self.argument(v) for k, v in s["kwargs"].items()}
        if s["how"] in ("getitem", "setitem"):
            index = tuple(args[1]) if isinstance(args[1], list) else args[1]
            if s["how"] == "getitem":
                return [args[0][index]]
            args[0][index] = args[2]
            return [args[0]]
        if s["how"] == "method":
            out = getattr(args[0], s["op"])(*args[1:], **kwargs)
        else:
            out = getattr(troupe, s["op"], None) or getattr(F, s["op"])
            out = out(*args, **kwargs)
        return list(out) if isinstance(out, (list, tuple)) else [out]

    def compare(self, got, want, close, scale):
        if got.dtype.name != want["dtype"] or list(got.shape) != want["shape"]:
            raise Different("%s %s, expected %s %s" % (got.dtype.name, list(got.shape), want["dtype"], want["shape"]))
        for a, b in zip(flat(got.detach().tolist()), map(number, want["data"])):
            if isinstance(b, float) and math.isnan(b):
                if not math.isnan(a):
                    raise Different("%r, expected nan" % a)
            elif a != b and not abs(a - b) <= close * max(1.0, scale):
                raise Different("%r, expected %r" % (a, b))

    def statements(self):
        for s in self.source["body"]:
            yield from ({**inner, "no_grad": True} for inner in s["no_grad"]) if "args" not in s else (s,)

    def step(self, s):
        """Why the program goes no further behind this statement; None: it does."""
        scale = max([abs(x) for n in self.inputs(s["args"]) for x in flat(self.live[n].detach().tolist()) if x == x and abs(x) < 1e300] or [1])
        try:
            with troupe.set_grad_enabled("no_grad" not in s):
                results = self.run(s)
        except (troupe.Error, TypeError, IndexError, AttributeError) as e:
            return None if s.get("raises") else "refused: " + str(e).splitlines()[0]
        if s.get("raises"):
            return "answered"  # what more liberal answers are documented is checked in C++
        for name, got, want in zip(s["out"], results, s["gives"]):
            largest = max([abs(number(x)) for x in want["data"] if math.isfinite(number(x))] or [0])
            self.compare(got, want, s["close"], max(scale, largest))
            self.live[name] = got
        return None

    def backward(self):
        """Runs back from the roots, as PyTorch did; how many gradients agree."""
        source = self.source
        if not source.get("roots") or source.get("backward_raises"):
            return 0
        roots = [self.live[r["name"]] for r in source["roots"]]
        weights = [troupe.tensor([number(w) for w in r["weight"]], dtype=t.dtype).reshape(t.shape) for r, t in zip(source["roots"], roots)]
        names = [n["name"] for n in source["leaves"] if n["requires_grad"] and "view" not in n and n["name"] in source["grads"]]
        try:
            found = troupe.autograd.grad(roots, [self.live[n] for n in names], weights, allow_unused=True)
        except troupe.Error:
            return 0
        scale = max([abs(number(x)) for n in source["leaves"] for x in n["data"] if math.isfinite(number(x))] or [1])
        for name, got in zip(names, found):
            want = source["grads"][name]
            if want is None or got is None:
                if want is not got:
                    raise Different("%s: %s, expected %s" % (name, got, want))
                continue
            largest = max([abs(number(x)) for x in want if math.isfinite(number(x))] or [1])
            for a, b in zip(flat(got.double().tolist()), map(number, want)):
                if not (a == b or a != a and b != b or abs(a - b) <= source["grads_close"] * max(1.0, scale, largest)):
                    raise Different("%s: %r, expected %r" % (name, a, b))
        return len(names)

    def inputs(self, args):
        for a in args:
            if isinstance(a, list):
                yield from self.inputs(a)
            elif isinstance(a, dict) and "t" in a:
                yield a["t"]


class Programs(unittest.TestCase):
    def run_all(self, file):
        counts, different = collections.Counter(), []
        for i, source in enumerate(json.loads((ORACLE / file).read_text())["programs"]):
            program = Program(source)
            for s in program.statements():
                try:
                    end = program.step(s)
                except Different as e:
                    different.append("program %d: %s: %s" % (i, s["op"], e))
                    break
                counts["statements"] += 1
                if end:
                    counts[end.split(":")[0]] += 1
                    break
            else:
                try:
                    counts["gradients"] += program.backward()
                except Different as e:
                    different.append("program %d: gradient: %s" % (i, e))
        return counts, different

    def test_random_programs_give_what_pytorch_gives(self):
        for file, most in MOST_REFUSED.items():
            counts, different = self.run_all(file)
            print(file, dict(counts))
            self.assertEqual(different, [])
            self.assertLessEqual(counts["refused"], most)


if __name__ == "__main__":
    unittest.main()
