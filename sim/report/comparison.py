"""Runs side by side: where their settings differ, and how their figures do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sim.errors import ResultsError
from sim.report.folder import ResultsFolder
from sim.report.values import flatten, in_words, is_number, setting
from sim.report.wording import number

ABSENT = "–"
NO_FIGURES = ("definitions", "seed", "block_size", "skipped", "notes", "timing")  # settings and texts


class Difference(NamedTuple):
    """A setting that is not the same in all runs; a run that lacks it has None in `values` and False in `present`."""

    path: str
    values: list[Any]
    present: list[bool]


class Figure(NamedTuple):
    """A figure of the summary, one value per run, None where a run lacks it."""

    name: str
    values: list[Any]

    @property
    def differs(self) -> bool:
        """Whether the runs disagree on it."""
        return any(v != self.values[0] for v in self.values[1:])


class Comparison(NamedTuple):
    """What `compare` found; the lists inside run parallel to `names`."""

    names: list[str]
    folders: list[ResultsFolder]
    settings: list[Difference]
    figures: list[Figure]


def compare(paths: Sequence[str | Path]) -> Comparison:
    """Read the settings and figures of two or more runs.

    Raises ResultsError for fewer than two, for a folder that is no run, or one that is damaged.
    """
    if len(paths) < 2:
        raise ResultsError("comparing takes two runs or more")
    folders = [ResultsFolder(path) for path in paths]
    for folder in folders:
        if folder.kind != "run":
            raise ResultsError(f"{folder.path}: is a sweep; name runs (its points are compared by 'kvsim report')")
    configs = [flatten({k: v for k, v in f.config.items() if k != "sweep"}) for f in folders]
    settings = []
    for path in dict.fromkeys(key for config in configs for key in config):
        values = [config.get(path) for config in configs]
        present = [path in config for config in configs]
        if not all(present) or any(v != values[0] for v in values[1:]):
            settings.append(Difference(path, values, present))
    summaries = [flatten({k: v for k, v in f.summary.items() if k not in NO_FIGURES}) for f in folders]
    figures = []
    for name in dict.fromkeys(key for summary in summaries for key in summary):
        values = [summary.get(name) for summary in summaries]
        if any(is_number(v) for v in values):
            figures.append(Figure(name, values))
    return Comparison(run_names(folders), folders, settings, figures)


def run_names(folders: Sequence[ResultsFolder]) -> list[str]:
    """A name for each run, the shortest tail of its path that tells all of them apart; equal paths are numbered."""
    parts = [folder.path.resolve().parts for folder in folders]
    names = [p[-1] for p in parts]
    for depth in range(1, 4):
        names = ["/".join(p[-depth:]) for p in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{name} #{i}" if names.count(name) > 1 else name for i, name in enumerate(names, 1)]


def change(first: Any, value: Any) -> str:
    """How a figure differs from the first run's, as a percentage; empty where that says nothing."""
    if not is_number(first) or not is_number(value) or first == value or first == 0:
        return ""
    share = (value - first) / abs(first)
    sign = "+" if share > 0 else "−"
    return f"{sign}{number(abs(100 * share))} %" if abs(share) < 10 else f"×{number(value / first)}"


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain data: names, settings that differ, and all figures."""
    return {
        "runs": comparison.names,
        "folders": [str(folder.path) for folder in comparison.folders],
        "settings": {
            d.path: [v if there else None for v, there in zip(d.values, d.present, strict=True)]
            for d in comparison.settings
        },
        "figures": {figure.name: figure.values for figure in comparison.figures},
    }


def as_text(comparison: Comparison, everything: bool = False) -> str:
    """Two plain tables: settings that differ, figures that differ (or, with `everything`, all)."""
    names = comparison.names
    lines = ["Settings that differ", *_aligned([["", *names], *(_setting_row(d) for d in comparison.settings)])]
    if not comparison.settings:
        lines = ["All settings are the same."]
    rows = []
    for figure in comparison.figures:
        if figure.differs or everything:
            cells = [in_words(figure.name, figure.values[0])]
            for value in figure.values[1:]:
                delta = change(figure.values[0], value)
                cells.append(in_words(figure.name, value) + (f" ({delta})" if delta else ""))
            rows.append([figure.name, *cells])
    if not rows:
        return "\n".join([*lines, "", "All figures are the same."])
    title = "Figures" if everything else "Figures that differ"
    return "\n".join([*lines, "", title, *_aligned([["", *names], *rows])])


def _setting_row(difference: Difference) -> list[str]:
    shown = [setting(v) if there else ABSENT for v, there in zip(difference.values, difference.present, strict=True)]
    return [difference.path, *shown]


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]  # fmt: skip
