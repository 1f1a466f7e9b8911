"""The .pyi files that the build writes are Python, and name what there is."""
import ast
import pathlib
import unittest

import troupe

PACKAGE = pathlib.Path(troupe.__file__).parent


def defined(file):
    """The names that a stub defines at its top."""
    return {n.name for n in ast.parse((PACKAGE / file).read_text(), file).body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}


class Stubs(unittest.TestCase):
    def test_they_name_what_there_is(self):
        self.assertEqual(defined("ops.pyi"), set(dir(troupe.ops)))
        self.assertLessEqual({"Tensor", "Actor", "Future", "Step"}, defined("_core.pyi"))
        self.assertLessEqual({n for n in vars(troupe.nn) if isinstance(vars(troupe.nn)[n], type)} - {"Module", "Parameter", "Sequential"} -
                             {"ModuleDict", "ModuleList"}, defined("nn/__init__.pyi"))
        self.assertIn("AdamW", defined("optim/__init__.pyi"))
        for file in ("__init__.pyi", "nn/functional.pyi"):
            ast.parse((PACKAGE / file).read_text(), file)
        self.assertTrue((PACKAGE / "py.typed").exists())


if __name__ == "__main__":
    unittest.main()
