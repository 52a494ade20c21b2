"""Figures as parts of a page: rendered in both themes, as PNG files and as data URIs."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sim.report.picture import NothingToShow, Picture
from sim.report.style import DARK, LIGHT, Theme, new_figure, rasterize, themed

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox
    from PIL.Image import Image

    from sim.report.folder import ResultsFolder

COLORS = 200


class Rendered(NamedTuple):
    """A figure ready for the page; sizes in pixels of the image."""

    name: str
    title: str
    sentence: str
    alt: str
    light: str
    dark: str
    width: int
    height: int


# table → the setting under `recording` that writes it, where it has another name
_SWITCHES = {"eviction_costs": "misses", "stalls": "steps"}


class Missing(NamedTuple):
    """A figure that is not there, and why."""

    name: str
    reason: str


def render_picture(picture: Picture, folder: ResultsFolder, png_folder: Path | None) -> Rendered | Missing:
    """Read what the picture needs from the folder and render it; `png_folder` gets the light one as a file."""
    tables: list[pd.DataFrame | None] = []
    for table, columns in picture.needs.items():
        present = folder.columns(table)
        if not present:
            switch = _SWITCHES.get(table, table)
            return Missing(picture.name, f"the table “{table}” was not recorded (recording.{switch}: true records it)")
        lacking = [c for c in columns if c not in present and not c.endswith("?")]
        if lacking:
            return Missing(picture.name, f"the table “{table}” has no column {', '.join(lacking)}")
        tables.append(folder.table(table, [c.rstrip("?") for c in columns if c.rstrip("?") in present]))
    for table, columns in picture.welcome.items():
        there = set(columns) <= set(folder.columns(table))
        tables.append(folder.table(table, columns) if there else None)
    try:
        numbers = picture.compute(*tables)
    except NothingToShow as reason:
        return Missing(picture.name, str(reason))
    return render(picture, numbers, png_folder)


def render(picture: Picture, numbers: Any, png_folder: Path | None) -> Rendered:
    """Draw computed numbers in both themes."""
    return render_drawing(
        picture.name, lambda ax: picture.draw(numbers, ax), picture.sentence(numbers), picture.size_inches, png_folder
    )


def render_drawing(
    name: str,
    draw: Callable[[Axes], object],
    sentence: str,
    size_inches: tuple[float, float],
    png_folder: Path | None,
) -> Rendered:
    """Draw in both themes, write the light one beside the page, and say in words what it shows."""
    light, figure = _draw(draw, size_inches, LIGHT, None)
    dark, _ = _draw(draw, size_inches, DARK, [axes.get_position() for axes in figure.axes])
    ax = figure.axes[0]
    title = ax.get_title(loc="left") or ax.get_title()
    axes = "".join(f", {name}" for name in (ax.get_ylabel(), ax.get_xlabel() and f"against {ax.get_xlabel()}") if name)
    png = _png(light)
    if png_folder is not None:
        png_folder.mkdir(parents=True, exist_ok=True)
        (png_folder / f"{name}.png").write_bytes(png)
    alt = f"Figure: {title}{axes}. {sentence}"
    return Rendered(name, title, sentence, alt, _data_uri(png), _data_uri(_png(dark)), *light.size)


def _draw(
    draw: Callable[[Axes], object], size_inches: tuple[float, float], theme: Theme, places: list[Bbox] | None
) -> tuple[Image, Figure]:
    """The drawing as an image; `places` are where its axes stand, found by the layout when None."""
    with themed(theme):
        figure = new_figure(size_inches, None if places else "constrained")
        draw(figure.add_subplot())
        for axes, place in zip(figure.axes, places or [], strict=False):
            axes.set_position(place)
        return rasterize(figure), figure


def _png(image: Image) -> bytes:
    """The image with a palette, which takes a third of the bytes."""
    from PIL import Image as pil

    buffer = io.BytesIO()
    image.quantize(COLORS, method=pil.Quantize.FASTOCTREE, dither=pil.Dither.NONE).save(buffer, format="PNG")
    return buffer.getvalue()


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
