"""The page that puts runs side by side."""

from __future__ import annotations

from pathlib import Path

from sim.report.blocks import Block, Cell, Figures, Page, Row, Section, Table, Text, name_cell, number_cell, shown
from sim.report.comparison import ABSENT, Comparison, change
from sim.report.embed import render
from sim.report.figures.compare import all_pictures
from sim.report.html import write_page
from sim.report.picture import NothingToShow
from sim.report.style import DARK, LIGHT
from sim.report.values import in_words, setting


def write_comparison(comparison: Comparison, page: Path) -> Path:
    """Write the page, and its figures as PNG files to a folder `figures` beside it.  Raises OSError."""
    return write_page(compare_page(comparison, page.parent / "figures"), page)


def compare_page(comparison: Comparison, png_folder: Path | None) -> Page:
    """Build the page; figures are written to `png_folder` on the way."""
    names = comparison.names
    sections = [
        Section("Settings that differ", [_settings(comparison)]),
        Section("Over time", *_figures(comparison, "steps", png_folder)),
        Section("Latency", *_figures(comparison, "requests", png_folder)),
        Section("Figures", _summaries(comparison), "Changes are against the first run."),
    ]
    titles = dict.fromkeys(str(f.config.get("name") or f.path.name) for f in comparison.folders)
    facts = [(f"run {i}", name) for i, name in enumerate(names, 1)]
    footer = f"Made from {', '.join(str(f.path) for f in comparison.folders)}. Figures are also PNGs beside this page."
    questions = list(dict.fromkeys(str(f.config.get("question") or "") for f in comparison.folders))
    question = questions[0] if len(questions) == 1 else ""
    return Page(f"{len(names)} runs side by side", " · ".join(titles), question, facts, sections, footer)


def _head(comparison: Comparison, first: str, numeric: bool) -> list[Cell]:
    return [
        name_cell(first),
        *(
            Cell(name, numeric, "", (LIGHT.series[i % len(LIGHT.series)], DARK.series[i % len(DARK.series)]))
            for i, name in enumerate(comparison.names)
        ),
    ]


def _settings(comparison: Comparison) -> Block:
    if not comparison.settings:
        return Text("All settings are the same.")
    rows = [
        Row(
            [
                name_cell(d.path),
                *(
                    name_cell(setting(v) if there else ABSENT)
                    for v, there in zip(d.values, d.present, strict=True)
                ),
            ]
        )
        for d in comparison.settings
    ]  # fmt: skip
    return Table("", _head(comparison, "Setting", False), rows)


def _figures(comparison: Comparison, table: str, png_folder: Path | None) -> tuple[list[Block]]:
    drawn, absent = [], []
    for picture, source in all_pictures():
        if source != table:
            continue
        columns = picture.needs[table]
        have = {
            name: folder.table(table, columns)
            for name, folder in zip(comparison.names, comparison.folders, strict=True)
            if set(columns) <= set(folder.columns(table))
        }
        shown_name = picture.name.removeprefix("compare_").replace("_", " ")
        if not have:
            absent.append(f"{shown_name}: no run recorded the table “{table}”")
            continue
        try:
            numbers = picture.compute(have)
        except NothingToShow as reason:
            absent.append(f"{shown_name}: {reason}")
            continue
        drawn.append(shown(render(picture, numbers, png_folder)))
        lacking = [name for name in comparison.names if name not in have]
        if lacking:
            absent.append(f"{shown_name} of {', '.join(lacking)}: the table “{table}” was not recorded")
    blocks: list[Block] = [Figures(drawn)] if drawn else []
    return ([*blocks, *(Text(f"Not shown: {text}.") for text in absent)],)


def _summaries(comparison: Comparison) -> list[Block]:
    differing: list[Row] = []
    same: list[Row] = []
    for figure in comparison.figures:
        cells = [name_cell(figure.name)]
        for value in figure.values:
            delta = change(figure.values[0], value)
            cells.append(number_cell(in_words(figure.name, value) + (f"  {delta}" if delta else "")))
        (differing if figure.differs else same).append(Row(cells))
    blocks: list[Block] = []
    if differing:
        blocks.append(Table("Figures that differ", _head(comparison, "Figure", True), differing))
    if same:
        blocks.append(Table("Figures that are the same", _head(comparison, "Figure", True), same, folded=True))
    return blocks or [Text("The runs have no figures in common.")]
