"""Lines that a user of PyTorch types give what PyTorch gives; or they are refused, as pytorch_lines.json says.

pytorch_lines_test.py --write with a Python that has torch asks it again.
"""
import contextlib
import io
import json
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).parent
LINES = [line for line in (HERE / "pytorch_lines.txt").read_text().splitlines() if line and not line.startswith("#")]
ANSWERS = HERE / "pytorch_lines.json"


def shown(value):
    """A value as both libraries have it, in JSON's terms."""
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        return {"dtype": str(value.dtype).rpartition(".")[2], "shape": list(value.shape), "elements": value.tolist()}
    if isinstance(value, (list, tuple)) and type(value).__name__ != "Size":
        return [shown(v) for v in value]
    return value if isinstance(value, (float, int, str)) else repr(value).replace("torch.", "troupe.")


def same(a, b):
    """Whether both are the same, but for the last digits of numbers."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or abs(a - b) <= 1e-5 + 2e-5 * abs(b)
    return type(a) is type(b) and a == b


def answer(torch, functional, line):
    """What a line gives, or what it raises, in a word."""
    names = {"torch": torch, "F": functional}
    exec("x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]); y = torch.tensor([[2.0, 2.0, 1.0], [0.5, 5.0, 7.0]])\n"
         "v = torch.tensor([3.0, 1.0, 2.0]); m = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 3.0]])\n"
         "i = torch.tensor([5, 0, 3]); w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)", names)
    first, _, last = line.rpartition("; ")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            if first:
                exec(first, names)
            value = eval(last, names)
        except Exception as e:
            return "raises " + type(e).__name__ + ": " + str(e).splitlines()[0]
    return shown(value) if value is not None or not out.getvalue() else "prints " + out.getvalue()


class Lines(unittest.TestCase):
    def test_lines_give_what_pytorch_gives(self):
        import troupe
        recorded = json.loads(ANSWERS.read_text())
        self.assertEqual(sorted(recorded["answers"]), sorted(LINES), "run this file with --write")
        refused = recorded["refused"]
        for line in LINES:
            with self.subTest(line):
                got = answer(troupe, troupe.nn.functional, line)
                want = recorded["answers"][line]
                if line in refused and not same(got, want):
                    self.assertIn(refused[line], str(got))
                else:
                    self.assertTrue(same(got, want), "got %s, PyTorch gives %s" % (got, want))


def write():
    import torch
    old = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {"refused": {}}
    answers = {line: answer(torch, torch.nn.functional, line) for line in LINES}
    answers = ",\n".join("  %s: %s" % (json.dumps(line), json.dumps(a)) for line, a in answers.items())
    ANSWERS.write_text('{"torch": "%s", "refused": %s, "answers": {\n%s\n}}\n' % (torch.__version__, json.dumps(old["refused"], indent=1), answers))


if __name__ == "__main__":
    write() if sys.argv[1:] == ["--write"] else unittest.main()
