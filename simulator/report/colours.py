"""Which colour stands for which kind of time, everywhere (readable with the usual colour blindnesses)."""

COLOURS = {
    "compute": "#4477aa",
    "recompute": "#99bbdd",
    "padding": "#dddddd",
    "tp": "#ee6677",
    "cp": "#cc3311",
    "ep": "#882255",
    "pp": "#ccbb44",
    "dp": "#228833",
    "bubble": "#bbbbbb",
    "optimizer": "#aa3377",
    "launch": "#66ccee",
    "data": "#997700",
    "checkpoint": "#555555",
    "offload": "#ddaa33",
    "other": "#777777",
}

BACKWARD = "#27506f"
"""Backward kernels, where a picture tells them from forward ones."""
