"""From a results folder to its report."""

from __future__ import annotations

from pathlib import Path

from sim.report.folder import ResultsFolder
from sim.report.html import write_page

PAGE = "report.html"
PNG_FOLDER = "figures"


def write_report(path: str | Path, output: str | Path | None = None) -> Path:
    """Write the report of a run or a sweep and return the path of its page.

    The page goes to `output` (default: report.html in the results folder), the figures as PNG files
    to a folder `figures` beside it.  Raises ResultsError when the folder has no readable results,
    OSError when the page can't be written.
    """
    folder = ResultsFolder(path)
    page_path = Path(output) if output is not None else folder.path / PAGE
    png_folder = page_path.parent / PNG_FOLDER
    from sim.report.run_page import run_page

    return write_page(run_page(folder, png_folder), page_path)
