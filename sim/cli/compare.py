"""`kvsim compare`: runs side by side."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command("compare")
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("compare.html"),
    show_default=True,
    help="The page to write.",
)
@click.option("--no-page", is_flag=True, help="Write no page, only the text or JSON.")
@click.option("--all", "everything", is_flag=True, help="Show equal figures as well.")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
def command(folders: tuple[Path, ...], output: Path, no_page: bool, everything: bool, as_json: bool) -> None:
    """Put runs side by side: settings and figures that differ, time series on the same axes.

    FOLDERS are two results folders or more; changes are counted against the first.
    """
    from sim.report import comparison

    found = comparison.compare(folders)
    if as_json:
        import json

        print(json.dumps(comparison.as_json(found), indent=2))
    else:
        print(comparison.as_text(found, everything))
    if not no_page:
        from sim.report.compare_page import write_comparison

        print(f"page: {write_comparison(found, output)}", file=sys.stderr)
