"""Pictures of what a program has measured."""
from . import _core


class Chart:
    """Lines in axes, which a notebook shows: troupe.Chart({"loss": losses}, title="Digits"). x is the place in the list."""

    def __init__(self, curves, title="", x_label="step", y_label=""):
        self._svg = _core.render_chart(title, x_label, y_label, [(name, [float(v) for v in values]) for name, values in curves.items()])

    def save(self, path):
        """Writes it as an SVG file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._svg)

    def _repr_svg_(self):
        return self._svg
