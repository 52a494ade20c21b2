"""The page of a workload: what `kvsim workload inspect --figures` writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.report.blocks import (
    Answers,
    Block,
    Card,
    Cards,
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
from sim.report.embed import render
from sim.report.figures.workload import PICTURES
from sim.report.html import write_page
from sim.report.picture import NothingToShow
from sim.report.wording import duration, number, percent, plural
from workloads.log import ReadLog

if TYPE_CHECKING:
    from sim.analysis.inspection import Inspection

SHARES = (
    ("tokens", "Tokens"),
    ("full_blocks", "Full blocks"),
    ("blocks", "Blocks with the partial last ones"),
    ("engine_tokens", "Tokens an engine hits"),
    ("tokens_with_answers", "Tokens, answers cached too"),
)


def write_workload_page(found: Inspection, result: dict[str, Any], log: ReadLog, folder: Path) -> Path:
    """Write ``workload.html`` and the figures as PNG files to `folder`.  Raises OSError."""
    return write_page(workload_page(found, result, log, folder), folder / "workload.html")


def workload_page(found: Inspection, result: dict[str, Any], log: ReadLog, png_folder: Path | None) -> Page:
    """Build the page; figures are written to `png_folder` on the way."""
    drawn, absent = [], []
    for picture in PICTURES:
        try:
            drawn.append(shown(render(picture, picture.compute(found), png_folder)))
        except NothingToShow as reason:
            absent.append(f"{picture.name.replace('_', ' ')}: {reason}")
    figures: list[Block] = [Figures(drawn)] if drawn else []
    figures += [Text(f"Not shown: {text}.") for text in absent]
    said = log.summary()
    sections = [
        Section("In numbers", [_cards(result)]),
        Section("Why not more hits?", _why(result)),
        Section("Figures", figures),
        Section("Prefix reuse", _reuse(result), "An infinite cache that takes the requests one after another."),
        Section("Lengths", [_lengths(result)]),
        Section("Largest prefixes", _largest(result)),
        Section("Oddities and what reading said", [_oddities(result), *([Notes(said)] if said else [])]),
    ]
    facts = [
        ("format", result["workload"]),
        ("requests", number(result["requests"])),
        ("block size", number(result["reuse"]["block_size"])),
    ]
    footer = f"Made from {result['source']} by kvsim workload inspect. The figures are also PNGs beside this page."
    return Page("Workload", Path(result["source"]).name, "", facts, sections, footer)


def _share(value: float | None) -> str:
    return "–" if value is None else percent(value, 2)


def _cards(result: dict[str, Any]) -> Block:
    arrivals, reuse, what = result["arrivals"], result["reuse"], result["definitions"]
    cards = [
        Card("Requests", number(result["requests"]), "", f"{plural(result['sessions']['count'], 'session')}"),
        Card("Prefix reuse", _share(reuse["cold"]["tokens"]["share"]), "of tokens", what["tokens"]),
        Card("In full blocks", _share(reuse["cold"]["full_blocks"]["share"]), "", what["full_blocks"]),
        Card("Last half", _share(reuse["last_half"]["tokens"]["share"]), "of tokens", what["last_half"]),
    ]
    if arrivals and arrivals["rate_per_s"] is not None:
        cv = arrivals["interval_cv"]
        cards.append(Card("Rate", f"{number(arrivals['rate_per_s'])} /s", f"over {duration(arrivals['span_s'])}", ""))
        cards.append(Card("Burstiness", number(cv) if cv is not None else "–", "CV of intervals", what["interval_cv"]))
    return Cards(cards)


def _why(result: dict[str, Any]) -> list[Block]:
    why = result["why"]
    items = [(_share(cause["share"]), cause["text"]) for cause in why["causes"]]
    limits: list[Block] = [Text(f"{why['not_counted']}.")] if "not_counted" in why else []
    return [Text(why["answer"]), *([Answers(items)] if items else []), *limits]


def _reuse(result: dict[str, Any]) -> list[Block]:
    reuse, what = result["reuse"], result["definitions"]
    head = [name_cell("Share"), number_cell("cold"), number_cell("last half"), name_cell("Definition")]
    rows = [
        Row(
            [
                name_cell(label),
                number_cell(_share(reuse["cold"][name]["share"])),
                number_cell(_share(reuse["last_half"][name]["share"])),
                name_cell(what[name]),
            ]
        )
        for name, label in SHARES
    ]
    rows += [
        Row([name_cell(label), number_cell(_share(reuse[name])), number_cell(""), name_cell(what[name])])
        for name, label in (("within_sessions", "Within sessions"), ("between_sessions", "Between sessions"))
        if result["sessions"]["count"]
    ]
    blocks: list[Block] = [Table(f"Blocks of {reuse['block_size']} tokens", head, rows)]
    distance = reuse["distance"]
    if distance["distance_tokens"]:
        names = list(distance["distance_tokens"])
        rows = [
            Row([name_cell(label), *(number_cell(number(distance[key][n])) for n in names), name_cell(what[key])])
            for key, label in (("distance_tokens", "Distinct tokens since"), ("distance_requests", "Requests since"))
        ]
        head = [name_cell("Reuse distance"), *(number_cell(n) for n in names), name_cell("Definition")]
        blocks.append(Table("Reuse distance, weighted by hit tokens", head, rows))
    return blocks


def _lengths(result: dict[str, Any]) -> Block:
    names = ("mean", "median", "p95", "p99", "min", "max", "total")
    rows = [
        Row([name_cell(label), *(number_cell(number(result[key].get(name))) for name in names)])
        for key, label in (("prompt_tokens", "Prompt"), ("output_tokens", "Answer"))
    ]
    return Table("", [name_cell("Tokens"), *(number_cell(name) for name in names)], rows)


def _largest(result: dict[str, Any]) -> list[Block]:
    if not result["largest_prefixes"]:
        return [Text("No prompt begins as an earlier one did.")]
    keys = (
        ("saved_tokens", "saved tokens"),
        ("from_token", "from token"),
        ("to_token", "to token"),
        ("prompts", "prompts"),
    )
    rows = [
        Row([name_cell(row["first_source"]), *(number_cell(number(row[key])) for key, _ in keys)])
        for row in result["largest_prefixes"]
    ]
    head = [name_cell("First seen"), *(number_cell(label) for _, label in keys)]
    return [Text(f"Saved tokens: {result['definitions']['saved_tokens']}."), Table("", head, rows)]


def _oddities(result: dict[str, Any]) -> Block:
    odd = result["oddities"]
    values = (
        ("Requests at the time of another one", odd["ties"]["requests"]),
        ("Most requests at one time", odd["ties"]["most_at_once"]),
        ("Requests that repeat an earlier one", odd["duplicate_requests"]),
        ("Sessions that repeat another one", odd["duplicate_sessions"]),
        ("… in groups", odd["duplicate_session_groups"]),
        ("Empty answers", odd["empty_answers"]),
        ("Empty prompts", odd["empty_prompts"]),
    )
    return Table("", [], [Row([name_cell(label), number_cell(number(value))]) for label, value in values])
