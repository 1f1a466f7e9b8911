"""The scripts of examples/python print the same as launched processes, and what they print is learning."""
import os
import pathlib
import subprocess
import sys
import unittest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples/python"


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


class Examples(unittest.TestCase):
    def numbers(self, name, *args):
        alone = run(sys.executable, "-B", EXAMPLES / name, *args)
        if os.path.exists(os.environ.get("TROUPE_COMMAND", "")):
            self.assertEqual(run(os.environ["TROUPE_COMMAND"], "run", "-n", "3", sys.executable, "-B", EXAMPLES / name, *args), alone)
        return [float(line.split()[-1]) for line in alone.splitlines()]

    def test_data_parallel(self):
        *losses, accuracy = self.numbers("data_parallel.py")
        self.assertLess(losses[-1], losses[0])
        self.assertGreater(accuracy, 0.8)

    def test_mixed(self):
        losses = self.numbers("mixed.py", "100")
        self.assertLess(losses[-1], losses[0])


if __name__ == "__main__":
    unittest.main()
