"""The report of one run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from sim.report.blocks import (
    Block,
    Card,
    Cards,
    Cell,
    Code,
    Figures,
    Notes,
    Page,
    Row,
    Section,
    Table,
    Text,
    name_cell,
    number_cell,
    shown,
)
from sim.report.embed import Missing, render_picture
from sim.report.figures import distributions, misses, timeline
from sim.report.values import flatten, in_words, is_number
from sim.report.wording import number, plural

if TYPE_CHECKING:
    from sim.report.folder import ResultsFolder
    from sim.report.picture import Picture

SECTIONS: tuple[tuple[str, str, tuple[Picture, ...]], ...] = (
    (
        "Over time",
        "All figures share one axis of simulated time, so that they can be read against each other.",
        (timeline.HIT_RATE, timeline.KV_USAGE, timeline.REQUESTS, timeline.EVICTIONS, timeline.WORK),
    ),
    (
        "Blocks",
        "What happened to the cached blocks that had to make room.",
        (distributions.LIFETIME, distributions.IDLE),
    ),
    (
        "Why blocks missed",
        "Every full block that was looked up and not found has a cause, and every eviction has a cost: "
        "the tokens that were computed again for it.",
        (misses.OVER_TIME, misses.BY_CATEGORY, misses.REGRET_BY_DEPTH, misses.REGRET_BY_AGE),
    ),
    (
        "Latency",
        "Simulated times of the requests that finished.",
        (distributions.TTFT, distributions.E2E, distributions.TPOT, distributions.ITL, distributions.QUEUE),
    ),
)

# candidates for the cards: label, names in the summary of which the first that is there is shown
HEADLINES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Hit rate, by token", ("hit_rate.tokens",)),
    ("Evictions", ("evictions",)),
    ("Preemptions", ("preemptions",)),
)


def run_page(folder: ResultsFolder, png_folder: Path | None) -> Page:
    """Build the page; figures are written to `png_folder` on the way.  Raises ResultsError for damaged tables."""
    flat = flatten({k: v for k, v in folder.summary.items() if k != "definitions"})
    definitions = flatten(folder.summary.get("definitions") or {})
    sections = [Section("What came out", [Cards(headline_cards(flat, definitions)), *oddities(folder)])]
    for heading, lead, pictures in SECTIONS:
        sections.append(figure_section(heading, lead, pictures, folder, png_folder))
    sections.append(Section("All figures of the summary", [summary_table(flat, definitions)]))
    sections.append(Section("How it was run", how_it_was_run(folder)))
    config = folder.config
    title = str(config.get("name") or folder.path.name)
    return Page("Report of a run", title, str(config.get("question") or ""), facts(folder), sections, footer(folder))


def figure_section(
    heading: str, lead: str, pictures: tuple[Picture, ...], folder: ResultsFolder, png_folder: Path | None
) -> Section:
    """A grid of figures, and for those that are not there one line that says why."""
    figures, absent = [], []
    for picture in pictures:
        result = render_picture(picture, folder, png_folder)
        if isinstance(result, Missing):
            absent.append(result)
        else:
            figures.append(shown(result))
    blocks: list[Block] = [Figures(figures)] if figures else []
    by_reason: dict[str, list[str]] = {}
    for item in absent:
        by_reason.setdefault(item.reason, []).append(item.name.replace("_", " "))
    blocks += [Text(f"Not shown: {', '.join(names)}: {reason}.") for reason, names in by_reason.items()]
    return Section(heading, blocks, lead)


def headline_cards(flat: dict[str, Any], definitions: dict[str, Any]) -> list[Card]:
    """The numbers that matter, as far as the summary has them."""
    cards = []
    for label, names in HEADLINES:
        for name in names:
            if flat.get(name) is not None:
                cards.append(Card(label, in_words(name, flat[name]), what=str(definitions.get(name, ""))))
                break
    return cards


def summary_table(flat: dict[str, Any], definitions: dict[str, Any]) -> Table:
    """Every figure with its definition, grouped by the first part of its name."""
    rows, group = [], None
    for name, value in flat.items():
        first, _, rest = name.partition(".")
        if rest and first != group:
            rows.append(Row([Cell(first.replace("_", " "))], "group"))
        group = first if rest else None
        shown_name = rest or first
        what = definitions.get(name) or definitions.get(name.rpartition(".")[0]) or ""
        value_cell = number_cell(in_words(name, value)) if is_number(value) else name_cell(in_words(name, value))
        rows.append(Row([name_cell(shown_name), value_cell, Cell(str(what), style="what")]))
    head = [name_cell("Figure"), number_cell("Value"), name_cell("Definition")]
    return Table("Everything in summary.json", head, rows, folded=True)


def oddities(folder: ResultsFolder) -> list[Block]:
    """What was skipped, rejected or worth a warning; a calm line when there was nothing."""
    texts = []
    if folder.columns("requests"):
        ends = folder.table("requests", ("status", "reason"))
        lost = ends[ends["status"] != "finished"]
        counts = lost.fillna({"reason": ""}).groupby(["status", "reason"], sort=True).size()
        for (status, reason), count in zip(counts.index.tolist(), counts.tolist(), strict=True):
            because = f": {reason}" if reason else ""
            texts.append(f"{plural(count, 'request was', 'requests were')} {status}{because}")
    for name in ("skipped", "notes", "warnings"):
        texts += _remarks(name, folder.summary.get(name))
    if not texts:
        return [Text("Nothing was skipped, rejected or aborted.")]
    return [Notes(texts)]


def _remarks(name: str, found: Any) -> list[str]:
    """Lines for a list of texts or for counts by reason."""
    if isinstance(found, dict):
        return [f"{number(count)} × {reason} ({name})" for reason, count in flatten(found).items() if count]
    if isinstance(found, list):
        return [str(item) for item in found]
    return [str(found)] if found else []


def how_it_was_run(folder: ResultsFolder) -> list[Block]:
    """The resolved configuration, and the manifest."""
    text = yaml.safe_dump(folder.config, sort_keys=False, allow_unicode=True, width=100) if folder.config else ""
    blocks: list[Block] = [Code("Configuration as resolved (config.yaml)", text)] if text else []
    rows = [Row([name_cell(k), name_cell(in_words(k, v))]) for k, v in flatten(folder.manifest).items()]
    if rows:
        blocks.append(Table("Versions, seed and command (manifest.json)", [], rows, folded=True))
    return blocks


def facts(folder: ResultsFolder) -> list[tuple[str, str]]:
    """The line under the title."""
    return [("run", folder.path.name), ("seed", str(folder.config.get("seed", "–")))]


def footer(folder: ResultsFolder) -> str:
    """Where it comes from."""
    version = folder.manifest.get("kvsim_version") or folder.manifest.get("version")
    made = f" by kvsim {version}" if version else ""
    return f"Made from {folder.path.name}{made}. Every figure is also a PNG beside this page."
