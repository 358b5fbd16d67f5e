"""One style for all figures: a colour and a marker for each algorithm, the heading, the files.

The colours are Okabe & Ito's, which colour-blind readers can tell apart; markers and direct
labels do the same in grey print.
"""

import os
import sys
from contextlib import chdir
from pathlib import Path
from textwrap import wrap

from ..algorithms import ALGORITHMS

# Drawings do not depend on the user's settings, which matplotlib looks for here, and then there.
_INLINE = "module://matplotlib_inline.backend_inline"
os.environ["MPLBACKEND"] = _INLINE if "ipykernel" in sys.modules else "agg"
os.environ["MATPLOTLIBRC"] = os.devnull
with chdir(Path(__file__).parent):
    import matplotlib as mpl
    import matplotlib.pyplot as plt  # noqa: F401, for all figures
mpl.rcdefaults()  # where it had been imported before
mpl.rcParams.update(
    {
        "svg.hashsalt": "sdcpd",  # with SOURCE_DATE_EPOCH=0: the same bytes every time
        "svg.fonttype": "none",
        "pdf.fonttype": 42,
        "font.size": 9,
        "axes.titlesize": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "legend.frameon": False,
        "figure.dpi": 110,
        "savefig.dpi": 200,
    }
)
NATS = "average log-likelihood (nats)"
STYLES = {name: algorithm.style for name, algorithm in ALGORITHMS.items()}
LETTERS = 15  # of the lines below a title, an inch


def save(figure, stem):
    """Write ``stem``.pdf, .png and .svg."""
    Path(stem).parent.mkdir(parents=True, exist_ok=True)
    for suffix in ("pdf", "png", "svg"):
        figure.savefig(f"{stem}.{suffix}", bbox_inches="tight")


def headline(figure, title, lines):
    """Put a title and lines of text above all axes, as wide as they are, and the axes below."""
    width, height = figure.get_size_inches()
    lines = [part for line in lines for part in wrap(line, int(LETTERS * width))]
    top = 0.2 + 0.26 + 0.17 * len(lines)  # inches
    figure.tight_layout(rect=(0, 0.32 / height, 1, 1 - top / height))
    figure.text(0.01, 1 - 0.1 / height, title, fontsize=12, weight="bold", va="top")
    figure.text(0.01, 1 - 0.36 / height, "\n".join(lines), fontsize=8.5, color="0.3", va="top")


def bottom_legend(figure, styles, handles=(), loc="lower center"):
    """Below all axes the handles, which have labels, and a line for each label of ``styles``."""
    lines = [mpl.lines.Line2D([], [], label=label, **style) for label, style in styles.items()]
    lines = [*handles, *lines]
    rows = -(-len(lines) // 8)  # more entries are wider than two panels
    figure.legend(handles=lines, loc=loc, ncols=-(-len(lines) // rows), fontsize=8)


def logarithmic(axis):
    """A logarithmic axis of epochs, with plain numbers."""
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(mpl.ticker.StrMethodFormatter("{x:g}"))
