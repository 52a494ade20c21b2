"""Figures as parts of a page: rendered in both themes, as PNG files and as data URIs."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sim.report.picture import NothingToShow, Picture
from sim.report.style import DARK, LIGHT, Theme, new_figure, png_bytes, themed

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    from matplotlib.axes import Axes

    from sim.report.folder import ResultsFolder


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
            return Missing(picture.name, f"the table “{table}” was not recorded (recording.{table}: true records it)")
        lacking = [c for c in columns if c not in present]
        if lacking:
            return Missing(picture.name, f"the table “{table}” has no column {', '.join(lacking)}")
        tables.append(folder.table(table, columns))
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
    light, title, alt, size = _draw(draw, size_inches, LIGHT)
    dark, *_ = _draw(draw, size_inches, DARK)
    if png_folder is not None:
        png_folder.mkdir(parents=True, exist_ok=True)
        (png_folder / f"{name}.png").write_bytes(light)
    return Rendered(name, title, sentence, f"{alt}. {sentence}", _data_uri(light), _data_uri(dark), *size)


def _draw(
    draw: Callable[[Axes], object], size_inches: tuple[float, float], theme: Theme
) -> tuple[bytes, str, str, tuple[int, int]]:
    with themed(theme):
        figure = new_figure(size_inches)
        ax = figure.add_subplot()
        draw(ax)
        title = ax.get_title(loc="left") or ax.get_title()
        image, size = compact(png_bytes(figure))
        across, up = ax.get_xlabel(), ax.get_ylabel()
    axes = f", against {across}" if across else ""
    axes = f", {up}{axes}" if up else axes
    return image, title, f"Figure: {title}{axes}", size


def compact(png: bytes, colors: int = 200) -> tuple[bytes, tuple[int, int]]:
    """The PNG with a palette, a third of the bytes, and its size in pixels."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as image:
        small = image.convert("RGB").quantize(colors, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        buffer = io.BytesIO()
        small.save(buffer, format="PNG")
        return buffer.getvalue(), image.size


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
