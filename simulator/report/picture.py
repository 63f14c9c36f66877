"""A figure that a notebook shows by itself, without pyplot and its state."""

from __future__ import annotations

from io import BytesIO

from matplotlib.figure import Figure


class Picture(Figure):
    """Shown where it is the value of a notebook's cell."""

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
        return buffer.getvalue()
