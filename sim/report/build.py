"""From a results folder to its report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sim.errors import ResultsError
from sim.report.folder import ResultsFolder
from sim.report.html import write_page

PAGE = "report.html"
PNG_FOLDER = "figures"


def write_report(
    path: str | Path, output: str | Path | None = None, *, goal: str | None = None, constraints: Sequence[str] = ()
) -> Path:
    """Write the report of a run or a sweep and return the path of its page.

    The page goes to `output` (default: report.html in the results folder), the figures as PNG files
    to a folder `figures` beside it.  `goal` ('max:COLUMN', 'min:COLUMN') and `constraints`
    ('COLUMN<=NUMBER') choose the best point of a sweep.

    Raises ResultsError when the folder has no readable results, or a goal is stated for a run or for
    a figure that the sweep doesn't have; OSError when the page can't be written.
    """
    folder = ResultsFolder(path)
    page_path = Path(output) if output is not None else folder.path / PAGE
    png_folder = page_path.parent / PNG_FOLDER
    _ = folder.config, folder.summary  # a damaged one is named before anything is drawn
    if folder.kind == "sweep":
        from sim.report.sweep_page import sweep_page

        return write_page(sweep_page(folder, png_folder, goal, constraints), page_path)
    if goal is not None or constraints:
        raise ResultsError(f"{folder.path}: is a single run; goals and constraints choose among the points of a sweep")
    from sim.report.run_page import run_page

    return write_page(run_page(folder, png_folder), page_path)
