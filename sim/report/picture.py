"""What a figure is made of: numbers first, then a drawing and a sentence from the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes

from sim.report.style import LIGHT, SIZE_INCHES, axes_or_new, muted, themed


class NothingToShow(Exception):
    """There is nothing that the figure could draw; the message says why, in words for the reader."""


@dataclass(frozen=True)
class Picture:
    """One figure of a page.

    `needs` names the tables and their columns ('name?': taken when it is there); `compute` takes these
    tables in that order and reduces them to the numbers drawn, or raises NothingToShow; `draw` puts
    the numbers on axes; `sentence` reads them aloud.  Tables in `welcome` follow those in `needs`,
    None where they are missing.
    """

    name: str
    needs: Mapping[str, tuple[str, ...]]
    compute: Callable[..., Any]
    draw: Callable[[Any, Axes], None]
    sentence: Callable[[Any], str]
    size_inches: tuple[float, float] = SIZE_INCHES
    welcome: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def plot(self, *tables: Any, ax: Axes | None = None, **options: Any) -> Axes:
        """Compute and draw; where there is nothing to show the axes say so.

        Without `ax` the figure is made in the light theme; with it, in the style it already has.
        """
        if ax is None:
            with themed(LIGHT):
                return self.plot(*tables, ax=axes_or_new(None, self.size_inches), **options)
        axes = ax
        try:
            numbers = self.compute(*tables, **options)
        except NothingToShow as reason:
            note(axes, str(reason))
        else:
            self.draw(numbers, axes)
        return axes


def note(ax: Axes, text: str) -> None:
    """Empty axes with a remark in the middle."""
    ax.set_axis_off()
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=muted(), wrap=True)


def headroom(ax: Axes, share: float = 0.14) -> None:
    """Lift the upper limit of the y axis so that a legend or marks find room above the data; the lower one is 0."""
    top = ax.get_ylim()[1]
    ax.set_ylim(0, top * (1 + share))


def legend(ax: Axes, **options: Any) -> None:
    """A legend in one row above the data."""
    handles, labels = ax.get_legend_handles_labels()
    if not handles:
        return
    settings: dict[str, Any] = {
        "loc": "upper left",
        "bbox_to_anchor": (0, 1.015),
        "ncols": len(handles),
        "borderaxespad": 0.2,
        "columnspacing": 1.2,
        "handletextpad": 0.5,
    }
    ax.legend(handles, labels, **{**settings, **options})
