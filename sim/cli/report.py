"""`kvsim report`: the report of a run or sweep as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("report")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The page (default: FOLDER/report.html).")
@click.option("--goal", metavar="max:FIGURE|min:FIGURE", help="Of a sweep: what makes a point the best one.")
@click.option(
    "--where",
    "constraints",
    metavar="FIGURE<=NUMBER",
    multiple=True,
    help="Of a sweep: a limit that the best point must meet (<= or >=; can be repeated).",
)
@click.option("--json", "as_json", is_flag=True, help="Print the page's path as JSON.")
def command(folder: Path, output: Path | None, goal: str | None, constraints: tuple[str, ...], as_json: bool) -> None:
    """Write the report of a run or sweep as one HTML page.

    FOLDER is what `kvsim run` or `kvsim sweep` wrote.  The page holds its style and pictures; the
    pictures are also written as PNG files to a folder `figures` beside it.
    """
    from sim.report.build import write_report

    page = write_report(folder, output, goal=goal, constraints=constraints)
    if as_json:
        import json

        print(json.dumps({"report": str(page)}))
    else:
        print(page)
