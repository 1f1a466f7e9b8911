"""Actors in C++ of a library of one's own: the project of ./dev new --python, whose library the tests' build has compiled."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import troupe

LIBRARY = os.environ.get("TROUPE_TEST_LIBRARY", "")
STARTER = pathlib.Path(__file__).resolve().parents[2] / "examples/starter/python"


@unittest.skipUnless(os.path.exists(LIBRARY), "the library of the tests is not built here")
class Libraries(unittest.TestCase):
    def test_its_actors_train_in_threads_and_in_processes(self):
        with tempfile.TemporaryDirectory() as folder:
            at = pathlib.Path(folder)
            (at / "build").mkdir()
            shutil.copy(LIBRARY, at / "build/libmine.so")
            shutil.copy(STARTER / "train.py", at)
            text = (at / "train.py").read_text()
            (at / "processes.py").write_text(text.replace("Cluster()", "Cluster(processes=3)"))

            def run(*command):
                done = subprocess.run([*command], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                return done.stdout
            alone = run(sys.executable, "-B", at / "train.py")
            losses = [float(line.split()[-1]) for line in alone.splitlines()]
            self.assertEqual(len(losses), 5)
            self.assertLess(losses[-1], 0.001)
            self.assertEqual(run(sys.executable, "-B", at / "processes.py"), alone)
            if os.environ.get("TROUPE_TEST_STARTER"):  # the starter in C++, whose losses have all their digits
                (at / "exact.py").write_text(text.replace("{loss.item():.5f}", "{loss.item():.17g}"))
                self.assertEqual(run(sys.executable, "-B", at / "exact.py"), run(os.environ["TROUPE_TEST_STARTER"]))
            if os.path.exists(os.environ.get("TROUPE_COMMAND", "")):
                self.assertEqual(run(os.environ["TROUPE_COMMAND"], "run", "-n", "3", sys.executable, "-B", at / "train.py"), alone)

    def test_what_is_no_library_of_these_headers_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "model.pt"
            file.write_bytes(b"PK\3\4")
            with self.assertRaisesRegex(TypeError, "load_safetensors"):
                troupe.load(file)
            content = pathlib.Path(LIBRARY).read_bytes()
            words = b"troupe was compiled with headers "
            at = content.index(words) + len(words)
            other = pathlib.Path(folder) / "libother.so"
            other.write_bytes(content[:at] + b"0" * 64 + content[at + 64:])
            with self.assertRaisesRegex(troupe.Error, "headers of another Troupe"):
                troupe.load(other)
            other.write_bytes(content.replace(words, b"x" * len(words)))
            with self.assertRaisesRegex(troupe.Error, "TROUPE_LIBRARY"):
                troupe.load(other)
        with self.assertRaises(FileNotFoundError):
            troupe.load("nowhere.so")

    def test_it_comes_before_the_cluster(self):
        with troupe.Cluster(workers=1):
            with self.assertRaisesRegex(RuntimeError, "before troupe.Cluster"):
                troupe.load(LIBRARY)
        names = troupe.load(LIBRARY)
        self.assertEqual(len(names), 1)
        self.assertEqual(troupe.load(LIBRARY), names)
        with troupe.Cluster(workers=2) as cluster:
            half = cluster.spawn("Half", "w1", 1, 4)
            self.assertEqual(half(troupe.ones(2, 1)).result().shape, (2, 4))


if __name__ == "__main__":
    unittest.main()
