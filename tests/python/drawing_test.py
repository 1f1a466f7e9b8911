"""Charts in Python are those of the examples in C++."""
import pathlib
import tempfile
import unittest

import troupe


class Charts(unittest.TestCase):
    def test_a_chart_names_its_lines_and_is_shown_as_it_is_saved(self):
        chart = troupe.Chart({"loss": [3, 2.0, float("nan"), 1.5], "of <others>": [troupe.tensor(2.5), 1]}, title="Digits", y_label="nats")
        shown = chart._repr_svg_()
        for text in ("<svg", "Digits", "nats", "step", ">loss<", "of &lt;others&gt;"):
            self.assertIn(text, shown)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "loss.svg"
            chart.save(file)
            self.assertEqual(file.read_text(encoding="utf-8"), shown)
        self.assertIn("no data", troupe.Chart({"loss": []})._repr_svg_())
        with self.assertRaises(TypeError):
            troupe.Chart({"loss": [None]})


if __name__ == "__main__":
    unittest.main()
