"""How figures look: two themes of one design, and axes that belong to no global state.

Figures are matplotlib `Figure` objects on the Agg canvas; pyplot is never imported, so a report
can be written from any thread or process, and a notebook's own figures stay as they are.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from os import PathLike

    from PIL.Image import Image

SIZE_INCHES = (5.0, 3.1)  # narrow enough that the text stays legible on a phone
DPI = 200


class Theme(NamedTuple):
    """Colours of one theme: paper, ink for text, muted ink for axes, grid, and the series in order."""

    name: str
    paper: str
    ink: str
    muted: str
    grid: str
    series: tuple[str, ...]
    colormap: str


LIGHT = Theme(
    "light",
    paper="#ffffff",
    ink="#1d2733",
    muted="#5a6878",
    grid="#e4e9ee",
    series=("#2b6cb0", "#d97316", "#2b9468", "#c8393f", "#7a58b3", "#1f97a8", "#7a8794", "#a9860a"),
    colormap="viridis",
)
DARK = Theme(
    "dark",
    paper="#171d26",
    ink="#e6ecf2",
    muted="#9fadbb",
    grid="#2c3541",
    series=("#6fb1f3", "#f2a04e", "#5cc79a", "#f2807d", "#b59cf0", "#5fc9d8", "#98a5b3", "#dcbb4b"),
    colormap="viridis",
)

# places in the series that mean the same thing in every figure
BLUE, ORANGE, GREEN, RED, PURPLE, TEAL, GREY, GOLD = range(8)


def rc_params(theme: Theme) -> dict[str, Any]:
    """The matplotlib settings of a theme."""
    return {
        "figure.facecolor": theme.paper,
        "axes.facecolor": theme.paper,
        "savefig.facecolor": theme.paper,
        "text.color": theme.ink,
        "axes.labelcolor": theme.muted,
        "axes.edgecolor": theme.muted,
        "xtick.color": theme.muted,
        "ytick.color": theme.muted,
        "axes.titlecolor": theme.ink,
        "grid.color": theme.grid,
        "grid.linewidth": 0.8,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.8,
        "axes.titlelocation": "left",
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
        "axes.titlepad": 9,
        "axes.labelsize": 9,
        "xtick.labelsize": 8.5,
        "ytick.labelsize": 8.5,
        "xtick.major.size": 3,
        "ytick.major.size": 0,
        "xtick.minor.size": 0,
        "ytick.minor.size": 0,
        "legend.fontsize": 8.5,
        "legend.frameon": False,
        "legend.handlelength": 1.3,
        "legend.labelcolor": theme.ink,
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "lines.linewidth": 1.6,
        "lines.solid_capstyle": "round",
        "hatch.color": theme.muted,
        "image.cmap": theme.colormap,
        "axes.prop_cycle": cycler(color=list(theme.series)),
        "axes.unicode_minus": True,
        "text.parse_math": False,  # a name with dollar signs is a name, not a formula
    }


@contextmanager
def themed(theme: Theme) -> Iterator[None]:
    """Draw inside this context with the settings of `theme`; the ones before come back at its end."""
    with mpl.rc_context(cast(Any, rc_params(theme))):
        yield


def color(place: int) -> str:
    """The series colour at `place`, counted round, under the settings now in force."""
    colors = mpl.rcParams["axes.prop_cycle"].by_key().get("color", ["black"])
    return to_hex(colors[place % len(colors)])


def ink() -> str:
    """The colour of text under the settings now in force."""
    return to_hex(mpl.rcParams["text.color"])


def muted() -> str:
    """The colour of axes and remarks under the settings now in force."""
    return to_hex(mpl.rcParams["axes.labelcolor"])


class ReportAxes(Axes):
    """Axes that a notebook shows as their figure when they end a cell."""

    def _repr_png_(self) -> bytes:
        return png_bytes(cast(Figure, self.get_figure(root=True)))


def new_figure(
    size_inches: tuple[float, float] = SIZE_INCHES, layout: Literal["constrained"] | None = "constrained"
) -> Figure:
    """An empty figure on the Agg canvas, known to nobody else."""
    figure = Figure(figsize=size_inches, dpi=DPI, layout=layout)
    FigureCanvasAgg(figure)
    return figure


def axes_or_new(ax: Axes | None, size_inches: tuple[float, float] = SIZE_INCHES) -> Axes:
    """The given axes, or fresh ones; fresh ones show themselves in a notebook."""
    if ax is not None:
        return ax
    axes: Axes = new_figure(size_inches).add_subplot(axes_class=ReportAxes)
    return axes


def rasterize(figure: Figure) -> Image:
    """The figure as an image without transparency, at the figure's own resolution."""
    from PIL import Image as pil

    canvas: Any = FigureCanvasAgg(figure)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a name in a script without glyphs
        canvas.draw()
    return pil.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def png_bytes(figure: Figure) -> bytes:
    """The figure as PNG, without a stamp of version or time, so that equal data give equal bytes."""
    buffer = io.BytesIO()
    rasterize(figure).save(buffer, format="PNG")
    return buffer.getvalue()


def save_png(figure: Figure, path: str | PathLike[str]) -> None:
    """Write the figure as PNG to `path`."""
    with open(path, "wb") as file:
        file.write(png_bytes(figure))
