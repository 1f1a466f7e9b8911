"""The program of docs/howto/python.md, as its reader runs it, prints what the page says."""
import pathlib
import re
import subprocess
import sys
import unittest

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/howto/python.md"


class Page(unittest.TestCase):
    def test_the_program_prints_what_the_page_says(self):
        program, printed = re.search(r"```python\n(.*?)```.*?```text\n(.*?)```", PAGE.read_text(), re.S).groups()
        done = subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, printed), done.stderr)


if __name__ == "__main__":
    unittest.main()
