"""The report of one run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
from sim.report.values import Definitions, flatten, in_words, is_number
from sim.report.wording import duration, number, plural

if TYPE_CHECKING:
    from sim.report.folder import ResultsFolder
    from sim.report.picture import Picture

MOST_REMARKS = 40
UNTOLD = ("definitions", "not_finished", "skipped", "notes", "name", "question")  # they stand elsewhere on the page

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

LATENCY = "latency."
LATENCY_NAMES = {
    "vllm:time_to_first_token_seconds": "time to first token (TTFT)",
    "vllm:request_time_per_output_token_seconds": "time per output token (TPOT)",
    "vllm:inter_token_latency_seconds": "inter-token latency (ITL)",
    "vllm:e2e_request_latency_seconds": "end to end (E2E)",
    "vllm:request_queue_time_seconds": "in the queue",
    "vllm:request_prefill_time_seconds": "in prefill",
    "vllm:request_decode_time_seconds": "in decoding",
    "vllm:request_inference_time_seconds": "in prefill and decoding",
}


class Headline(NamedTuple):
    """A card: its label, the figure it shows, and a second figure with the words around it."""

    label: str
    name: str
    extra: str = ""
    extra_name: str = ""


HEADLINES = (
    Headline("Hit rate, tokens", "hit_rate.tokens", "{} after warm-up", "hit_rate.tokens_after_warmup"),
    Headline("Hit rate, full blocks", "hit_rate.full_blocks", "{} after warm-up", "hit_rate.full_blocks_after_warmup"),
    Headline("Evictions", "evictions", "{} per 1,000 prompt tokens", "evictions_per_1000_prompt_tokens"),
    Headline("Preemptions", "preemptions", "in {} requests", "preempted_requests"),
    Headline("Requests finished", "requests.finished", "of {}", "requests.total"),
    Headline("KV usage, mean", "kv_usage.mean", "{} at most", "kv_usage.max"),
    *(
        Headline(f"{label}, median", f"{LATENCY}{metric}.median", "p99 {}", f"{LATENCY}{metric}.p99")
        for label, metric in (
            ("TTFT", "vllm:time_to_first_token_seconds"),
            ("TPOT", "vllm:request_time_per_output_token_seconds"),
            ("End to end", "vllm:e2e_request_latency_seconds"),
        )
    ),
    Headline("Output throughput", "benchmark.output_throughput"),
    Headline("Goodput", "goodput.share", "{} good requests", "goodput.requests_per_s"),
    Headline("Phantom hits", "phantom_hit_tokens", "tokens"),
)


def run_page(folder: ResultsFolder, png_folder: Path | None) -> Page:
    """Build the page; figures are written to `png_folder` on the way.  Raises ResultsError for damaged tables."""
    known = Definitions(folder.summary)
    flat = flatten({k: v for k, v in folder.summary.items() if k not in UNTOLD})
    sections = [Section("What came out", [Cards(headline_cards(flat, known)), *oddities(folder)])]
    for heading, lead, pictures in SECTIONS:
        section = figure_section(heading, lead, pictures, folder, png_folder)
        if heading == "Latency":
            section.blocks[:0] = latency_table(folder.summary, known)
        sections.append(section)
    sections.append(Section("All figures", [summary_table(flat, known)]))
    sections.append(Section("How it was run", how_it_was_run(folder)))
    config = folder.config
    title = str(config.get("name") or folder.path.name)
    page_facts = facts(folder, flat)
    return Page("Report of a run", title, str(config.get("question") or ""), page_facts, sections, footer(folder))


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


def headline_cards(flat: dict[str, Any], known: Definitions) -> list[Card]:
    """The numbers that matter, as far as the summary has them; no card for phantom hits when there are none."""
    cards = []
    for label, name, extra, extra_name in HEADLINES:
        if flat.get(name) is None or (name == "phantom_hit_tokens" and not flat[name]):
            continue
        beside = extra
        if extra_name:
            value = flat.get(extra_name)
            beside = extra.format(known.words(extra_name, value)) if value is not None and flat[name] else ""
        text, long_unit, _ = known.words(name, flat[name]).partition(" tokens/s")
        cards.append(Card(label, text, beside or long_unit.strip(), known.text(name)))
    return cards


def latency_table(summary: dict[str, Any], known: Definitions) -> list[Block]:
    """Mean and percentiles of each latency under the name of vLLM's metric; nothing when the summary has none."""
    columns = ("mean", "median", "p90", "p99", "max")
    rows = []
    for metric, found in (summary.get("latency") or {}).items():
        if isinstance(found, dict) and found.get("count"):
            name = f"{LATENCY}{metric}"
            cells = [name_cell(LATENCY_NAMES.get(metric, metric))]
            cells += [number_cell(known.words(f"{name}.{c}", found.get(c))) for c in columns]
            cells.append(Cell(f"{known.text(name)} ({metric})", style="what"))
            rows.append(Row(cells))
    if not rows:
        return []
    head = [name_cell("Latency"), *(number_cell(c) for c in columns), name_cell("Definition (vLLM's metric)")]
    return [Table("", head, rows)]


def summary_table(flat: dict[str, Any], known: Definitions) -> Table:
    """Every figure with its definition, grouped by the first part of its name."""
    rows, group = [], None
    for name, value in flat.items():
        first, _, rest = name.partition(".")
        if rest and first != group:
            rows.append(Row([Cell(first.replace("_", " "))], "group"))
        group = first if rest else None
        text = known.words(name, value)
        value_cell = number_cell(text) if is_number(value) else name_cell(text)
        rows.append(Row([name_cell(rest or first), value_cell, Cell(known.text(name), style="what")]))
    head = [name_cell("Figure"), number_cell("Value"), name_cell("Definition")]
    return Table("Everything in summary.json", head, rows, folded=True)


def oddities(folder: ResultsFolder) -> list[Block]:
    """What was skipped, rejected or worth a warning; a calm line when there was nothing."""
    texts = []
    for status, reasons in (folder.summary.get("not_finished") or {}).items():
        for reason, count in reasons.items():
            texts.append(f"{plural(count, 'request was', 'requests were')} {status}: {reason}")
    texts += [f"{number(count)} × skipped: {reason}" for reason, count in (folder.summary.get("skipped") or {}).items()]
    texts += [str(note) for note in folder.summary.get("notes") or []]
    if not texts:
        return [Text("Nothing was skipped, rejected or aborted.")]
    shown_texts = texts[:MOST_REMARKS]
    if len(texts) > MOST_REMARKS:
        shown_texts.append(f"{plural(len(texts) - MOST_REMARKS, 'more remark')} in summary.json")
    return [Notes(shown_texts)]


def how_it_was_run(folder: ResultsFolder) -> list[Block]:
    """The resolved configuration, and the manifest."""
    text = yaml.safe_dump(folder.config, sort_keys=False, allow_unicode=True, width=100) if folder.config else ""
    blocks: list[Block] = [Code("Configuration as resolved (config.yaml)", text)] if text else []
    rows = [Row([name_cell(k), name_cell(in_words(k, v))]) for k, v in flatten(folder.manifest).items()]
    if rows:
        blocks.append(Table("Versions, seed and command (manifest.json)", [], rows, folded=True))
    return blocks


def facts(folder: ResultsFolder, flat: dict[str, Any]) -> list[tuple[str, str]]:
    """The line under the title: which run, how long, with which cache."""
    config = folder.config
    found = [("run", folder.path.name), ("seed", str(config.get("seed", "–")))]
    if is_number(flat.get("simulated_s")):
        found.append(("simulated", duration(float(flat["simulated_s"]))))
    if is_number(flat.get("steps")):
        found.append(("steps", number(flat["steps"])))
    if is_number(flat.get("block_size")):
        found.append(("block size", f"{flat['block_size']} tokens"))
    if is_number(flat.get("num_gpu_blocks")):
        found.append(("blocks", number(flat["num_gpu_blocks"])))
    policy = (config.get("eviction") or {}).get("policy")
    if policy:
        found.append(("eviction", str(policy)))
    wall = folder.manifest.get("wall_s")
    if isinstance(wall, (int, float)):
        found.append(("took", duration(float(wall))))
    return found


def footer(folder: ResultsFolder) -> str:
    """Where it comes from."""
    version = folder.manifest.get("kvsim_version") or folder.manifest.get("version")
    made = f" by kvsim {version}" if version else ""
    return f"Made from {folder.path.name}{made}. Every figure is also a PNG beside this page."
