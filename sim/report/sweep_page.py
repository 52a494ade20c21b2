"""The report of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import ResultsError
from sim.report.blocks import (
    Answers,
    Block,
    Figures,
    Notes,
    Page,
    Row,
    Section,
    Shown,
    Table,
    Text,
    name_cell,
    number_cell,
    shown,
)
from sim.report.embed import render
from sim.report.figures import sweep as figures
from sim.report.picture import NothingToShow, Picture
from sim.report.sweep_data import (
    Choice,
    SweepPoints,
    best_point,
    check_column,
    parse_constraint,
    short_name,
    smallest_budget,
    value_text,
)
from sim.report.values import flatten, setting
from sim.report.wording import plural

if TYPE_CHECKING:
    import pandas as pd

    from sim.report.folder import ResultsFolder

MOST_ROWS = 500
MOST_LINES = 20
UNTOLD = ("name", "question")


def sweep_page(
    folder: ResultsFolder, png_folder: Path | None, goal: str | None = None, constraints: Sequence[str] = ()
) -> Page:
    """Build the page.

    Args:
        folder: a folder with the table `points`.
        png_folder: gets the figures as PNG files.
        goal: 'max:COLUMN' or 'min:COLUMN' (default: the highest hit rate).
        constraints: 'COLUMN<=NUMBER' or 'COLUMN>=NUMBER', all of which a chosen point meets.

    Raises ResultsError for a goal or constraint on a figure that the points don't have.
    """
    table = folder.table("points")
    about = folder.about
    sweep = SweepPoints.from_table(table, about.get("parameters"))
    failed = len(table) - len(sweep.points)
    answers, best = answer(sweep, goal, constraints)
    first: list[Block] = [Answers(answers)] if answers else [Text("No point finished.")]
    if failed:
        first.append(Notes([f"{plural(failed, 'point')} of {len(table)} did not finish; see below."]))
    sections = [Section("Answers", first)]
    drawn, absent = drawings(sweep, png_folder)
    blocks: list[Block] = [Figures(drawn)] if drawn else []
    blocks += [Text(f"Not shown: {text}.") for text in absent]
    sections.append(Section("Figures", blocks, "Every point is one simulated run."))
    sections.append(Section("Points", [points_table(sweep, best), *failures(table)]))
    sections.append(Section("Held fixed", held_fixed(about)))
    title = str(about.get("name") or folder.path.name)
    asked = list(dict.fromkeys(table["question"].dropna().astype(str))) if "question" in table.columns else []
    question = asked[0] if len(asked) == 1 else ""
    facts = [("points", str(len(table))), ("varied", ", ".join(short_name(p) for p in sweep.parameters) or "nothing")]
    for key, label in (("left_out_by_conditions", "left out by conditions"), ("repeats_of_a_configuration", "repeats")):
        if about.get(key):
            facts.append((label, str(about[key])))
    if sweep.seeds > 1:
        facts.append(("seeds", str(sweep.seeds)))
    footer = f"Made from the sweep {folder.path.name}. Every figure is also a PNG beside this page."
    return Page("Report of a sweep", title, question, facts, sections, footer)


def parse_goal(text: str, columns: Sequence[str]) -> tuple[str, str]:
    """The column of a goal and which way is better.  Raises ResultsError naming what is wrong."""
    way, colon, column = text.partition(":")
    if not colon or way not in ("max", "min"):
        raise ResultsError(f"goal {text!r}: write it as max:COLUMN or min:COLUMN")
    check_column(column, columns)
    return column, "high" if way == "max" else "low"


def answer(
    sweep: SweepPoints, goal: str | None, constraints: Sequence[str]
) -> tuple[list[tuple[str, str]], int | None]:
    """Findings in words, and the best point's row in `sweep.means`."""
    columns = [str(c) for c in sweep.points.columns]
    limits = [parse_constraint(text, columns) for text in constraints]
    choices: list[tuple[str, Choice]] = []
    if goal is not None:
        column, better = parse_goal(goal, columns)
        choices.append((f"Best by {goal}:", best_point(sweep, column, better, limits)))
    elif "hit_rate" in sweep.metrics:
        metric = sweep.metrics["hit_rate"]
        choices.append(("Highest hit rate:", best_point(sweep, metric.columns[0], metric.better, limits)))
    chosen = choices[0][1].row if choices else None
    enough = smallest_budget(sweep)
    if enough is not None:
        choices.append(("Smallest budget that keeps 90 % of the best hit rate:", enough))
    if "ttft_p99" in sweep.metrics and goal is None:
        metric = sweep.metrics["ttft_p99"]
        choices.append(("Lowest TTFT at the 99th percentile:", best_point(sweep, metric.columns[0], "low", limits)))
    return [(bold, choice.words) for bold, choice in choices], chosen


def drawings(sweep: SweepPoints, png_folder: Path | None) -> tuple[list[Shown], list[str]]:
    """All figures that the points allow, and why the others are missing."""
    wanted: list[tuple[str, Picture, dict[str, Any]]] = [("hit_rate_against_memory", figures.PARETO, {})]
    wanted += [(f"lines_{key}", figures.LINES, {"key": key}) for key in ("hit_rate", "ttft_p99")]
    wanted += [
        (f"heat_{key}", figures.HEAT, {"key": key}) for key in ("hit_rate", "evictions", "preemptions", "ttft_p99")
    ]
    drawn, absent = [], []
    for name, picture, options in wanted:
        try:
            numbers = picture.compute(sweep, **options)
        except NothingToShow as reason:
            absent.append(f"{name.replace('_', ' ')}: {reason}")
            continue
        named = Picture(name, {}, picture.compute, picture.draw, picture.sentence, picture.size_inches)
        drawn.append(shown(render(named, numbers, png_folder)))
    return drawn, absent


def points_table(sweep: SweepPoints, best: int | None) -> Table:
    """Parameters and figures of merit of the finished points; the best one is marked."""
    table = sweep.points
    seeds = [c for c in ("seed",) if c in table.columns and sweep.seeds > 1]
    parameters = [*sweep.parameters, *seeds]
    metrics = list(sweep.metrics.values())
    head = [name_cell(short_name(p)) for p in parameters] + [number_cell(m.label) for m in metrics]
    values = [sweep.values(metric) for metric in metrics]
    chosen = sweep.means.keys[best] if best is not None else None
    rows = []
    for i in range(min(len(table), MOST_ROWS)):
        cells = [name_cell(value_text(p, table[p].iloc[i])) for p in parameters]
        cells += [
            number_cell(figures.metric_text(m, float(column[i]))) for m, column in zip(metrics, values, strict=True)
        ]
        rows.append(Row(cells, "best" if sweep.keys[i] == chosen else ""))
    more = f"; the first {MOST_ROWS} of {len(table)}, the rest is in points.csv" if len(table) > MOST_ROWS else ""
    return Table(f"Finished points{more}", head, rows, folded=len(rows) > 40)


def failures(table: pd.DataFrame) -> list[Block]:
    """Points that did not finish, with their parameters' row number and error."""
    if "status" not in table.columns:
        return []
    lost = table[table["status"] != "finished"]
    errors = lost["error"] if "error" in lost.columns else [None] * len(lost)
    lines = []
    for number, status, error in zip(lost.get("point", lost.index), lost["status"], errors, strict=True):
        lines.append(f"point {number} {status}" + (f": {error}" if isinstance(error, str) and error else ""))
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"{len(lines) - MOST_LINES} more in points.csv"]
    return [Notes(lines)] if lines else []


def held_fixed(about: dict[str, Any]) -> list[Block]:
    """Settings that were the same in all points."""
    fixed = {name: value for name, value in flatten(about.get("held_fixed") or {}).items() if name not in UNTOLD}
    if not fixed:
        return [Text("Nothing was held fixed.")]
    rows = [Row([name_cell(name), name_cell(setting(value))]) for name, value in fixed.items()]
    head = [name_cell("Setting"), name_cell("Value")]
    return [Table("The same in all points", head, rows, folded=True)]
