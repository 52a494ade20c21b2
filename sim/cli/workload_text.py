"""What `kvsim workload inspect` found, as text for a terminal."""

from __future__ import annotations

import textwrap
from typing import Any

from sim.report.wording import duration, number, percent, plural, short
from workloads.log import ReadLog

WIDTH = 112
SHARES = ("tokens", "full_blocks", "blocks", "engine_tokens", "tokens_with_answers")
NAMES = {
    "tokens": "tokens",
    "full_blocks": "full blocks",
    "blocks": "blocks with partial",
    "engine_tokens": "tokens an engine hits",
    "tokens_with_answers": "tokens, answers cached",
}


def inspection_text(result: dict[str, Any], log: ReadLog) -> str:
    """The whole text."""
    parts = [
        f"{result['source']} · {result['workload']} · {plural(result['requests'], 'request')}",
        _arrivals(result),
        _lengths(result),
        _who(result),
        _reuse(result),
        _popularity(result),
        _largest(result),
        _why(result),
        _oddities(result, log),
    ]
    return "\n\n".join(part for part in parts if part)


def _arrivals(result: dict[str, Any]) -> str:
    found = result["arrivals"]
    if not found:
        return ""
    closed = result["closed_loop_requests"]
    lines = ["ARRIVALS"]
    if found["rate_per_s"] is None:
        lines.append("  all at one time")
    else:
        cv = found["interval_cv"]
        lines.append(
            f"  span {duration(found['span_s'])}, {number(found['rate_per_s'])} requests/s; intervals' CV "
            f"{number(cv) if cv is not None else '–'} (1 = Poisson, 0 = a clock), dispersion per second "
            f"{number(found['dispersion'])} (1 = Poisson), peak {found['peak_per_s']:,} in one second"
        )
        rates = [window["rate_per_s"] for window in found["windows"]]
        lines.append(f"  rate over time  {_bars(rates)}  {number(min(rates))} to {number(max(rates))} requests/s")
        cvs = [window["interval_cv"] or 0 for window in found["windows"]]
        lines.append(f"  CV over time    {_bars(cvs)}  {number(min(cvs))} to {number(max(cvs))}")
    if closed:
        lines.append(
            f"  {closed:,} requests are closed-loop: each follows the end of another after a think time (mean "
            f"{duration(result['think_s']['mean'])}, median {duration(result['think_s']['median'])}); times here are "
            "as if answers took no time, a lower bound"
        )
    return "\n".join(lines)


def _bars(values: list[float]) -> str:
    top = max(values) or 1
    return "".join(" ▁▂▃▄▅▆▇█"[max(0, min(8, round(8 * value / top)))] for value in values)


def _lengths(result: dict[str, Any]) -> str:
    heads = ("mean", "median", "p95", "p99", "min", "max", "total")
    lines = ["LENGTHS [tokens]", "           " + "".join(f"{head:>16}" for head in heads)]
    for name in ("prompt", "output"):
        figures = result[f"{name}_tokens"]
        lines.append(f"  {name:<9}" + "".join(f"{_length(figures[head]):>16}" for head in heads))
    return "\n".join(lines)


def _length(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0") if value < 100_000 else f"{value:,.0f}"


def _who(result: dict[str, Any]) -> str:
    lines = []
    sessions = result["sessions"]
    if sessions["count"]:
        turns = sessions["requests_per_session"]
        rest = sessions["requests_without_session"]
        lines.append(
            f"  {plural(sessions['count'], 'session')}: requests per session mean {number(turns['mean'])}, median "
            f"{number(turns['median'])}, p99 {number(turns['p99'])}, max {number(turns['max'])}"
            + (f"; {rest:,} requests belong to none" if rest else "")
        )
    categories = result["categories"]
    if len(categories) > 1 or any(categories):
        for name, row in list(categories.items())[:12]:
            lines.append(
                f"  category {name or '(none)'}: {row['requests']:,} requests, "
                f"{short(row['prompt_tokens'])} prompt and {short(row['output_tokens'])} output tokens"
            )
        if len(categories) > 12:
            lines.append(f"  … and {len(categories) - 12} more categories")
    f = result["features"]
    if f["image_requests"]:
        lines.append(
            f"  images: {f['images']:,} in {f['image_requests']:,} requests, {f['distinct_images']:,} different ones, "
            f"{short(f['image_tokens'])} tokens"
        )
    if f["lora_requests"]:
        lines.append(f"  LoRA: {f['lora_adapters']:,} adapters in {f['lora_requests']:,} requests")
    if f["salted_requests"]:
        lines.append(f"  salts: {f['cache_salts']:,} in {f['salted_requests']:,} requests")
    if f["priorities"] > 1:
        lines.append(f"  {f['priorities']:,} different priorities")
    if f["requests_with_abort"]:
        lines.append(f"  {f['requests_with_abort']:,} requests are given up by their client after a time")
    return "\n".join(["WHO", *lines]) if lines else ""


def _reuse(result: dict[str, Any]) -> str:
    reuse, what = result["reuse"], result["definitions"]
    size = reuse["block_size"]
    lines = [
        f"PREFIX REUSE  infinite cache, requests one after another, blocks of {size}",
        f"  cold: {what['cold']}",
        f"  last half: {what['last_half']}",
        f"  {'':<24}{'cold':>9}{'last half':>11}",
    ]
    for name in SHARES:
        cold, half = reuse["cold"][name]["share"], reuse["last_half"][name]["share"]
        lines += _defined(f"  {NAMES[name]:<24}{_percent(cold):>9}{_percent(half):>11}  ", what[name])
    by_session = ("within_sessions", "between_sessions", "without_session") if result["sessions"]["count"] else ()
    for name in by_session:
        lines += _defined(f"  {name.replace('_', ' '):<24}{_percent(reuse[name]):>9}{'':>11}  ", what[name])
    sizes = reuse["by_block_size"]
    lines.append("  by block size, cold             " + "".join(f"{row['block_size']:>9}" for row in sizes))
    for name in ("full_blocks", "blocks", "engine_tokens"):
        row = "".join(f"{_percent(row['cold'][name]['share']):>9}" for row in sizes)
        lines.append(f"    {NAMES[name]:<28}{row}")
    distance = reuse["distance"]
    if distance["distance_tokens"]:
        lines.append("  reuse distance, by hit tokens        p10         p50         p90         p99         max")
        for name in ("distance_tokens", "distance_requests"):
            row = "".join(f"{value:>12,}" for value in distance[name].values())
            lines += _defined(f"    {name.replace('_', ' '):<24}{row}  ", what[name], WIDTH + 40)
    return "\n".join(lines)


def _defined(start: str, text: str, width: int = WIDTH + 30) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=start, subsequent_indent=" " * len(start))


def _percent(share: float | None) -> str:
    return "–" if share is None else percent(share, 2)


def _popularity(result: dict[str, Any]) -> str:
    found = result["popularity"]
    total = result["prompt_tokens"].get("total", 0)
    lines = [
        "POPULARITY OF PREFIXES",
        f"  {'prompts that have them':<26}{'distinct tokens':>18}{'prompt tokens':>18}{'share':>9}",
    ]
    for row in found["by_uses"]:
        if row["distinct_tokens"]:
            part = _percent(row["prompt_tokens"] / total if total else None)
            lines.append(f"  {row['prompts']:<26}{row['distinct_tokens']:>18,}{row['prompt_tokens']:>18,}{part:>9}")
    lines.append(
        f"  {plural(found['distinct_first_tokens'], 'different first token')}; the commonest begins "
        f"{_percent(found['requests_with_the_commonest_first_token'])} of the requests, the ten commonest "
        f"{_percent(found['requests_with_the_10_commonest_first_tokens'])}"
    )
    return "\n".join(lines)


def _largest(result: dict[str, Any]) -> str:
    rows = result["largest_prefixes"]
    if not rows:
        return ""
    lines = [
        f"LARGEST PREFIXES  saved tokens: {result['definitions']['saved_tokens']}",
        f"  {'saved tokens':>16}{'from token':>12}{'to token':>12}{'prompts':>10}  first seen",
    ]
    for row in rows:
        lines.append(
            f"  {row['saved_tokens']:>16,}{row['from_token']:>12,}{row['to_token']:>12,}{row['prompts']:>10,}"
            f"  {row['first_source']}"
        )
    longest = result["longest_shared_prefixes"]
    if longest:
        text = ", ".join(f"{row['tokens']:,} tokens ({row['prompts']:,} prompts)" for row in longest)
        lines.append(f"  longest prefixes that two prompts or more share: {text}")
    return "\n".join(lines)


def _why(result: dict[str, Any]) -> str:
    why = result["why"]
    lines = ["WHY NOT MORE HITS?", *textwrap.wrap(why["answer"], WIDTH, initial_indent="  ", subsequent_indent="  ")]
    if "not_counted" in why:
        lines += textwrap.wrap(why["not_counted"], WIDTH, initial_indent="  ", subsequent_indent="  ")
    for cause in why["causes"]:
        start = f"  {_percent(cause['share']):>9}  "
        lines += textwrap.wrap(cause["text"], WIDTH, initial_indent=start, subsequent_indent=" " * len(start))
    return "\n".join(lines)


def _oddities(result: dict[str, Any], log: ReadLog) -> str:
    odd = result["oddities"]
    ties = odd["ties"]
    lines = []
    if ties["requests"]:
        lines.append(
            f"ties: {ties['requests']:,} requests arrive at the time of another ({ties['times']:,} such times, up to "
            f"{ties['most_at_once']:,} at once)"
        )
    if odd["duplicate_requests"]:
        lines.append(
            f"duplicates: {odd['duplicate_requests']:,} requests repeat prompt and answer length of an earlier one"
        )
    if odd["duplicate_sessions"]:
        lines.append(
            f"duplicates: {odd['duplicate_sessions']:,} sessions in {plural(odd['duplicate_session_groups'], 'group')} "
            "repeat each other's lengths, request by request"
        )
    if odd["empty_answers"]:
        lines.append(f"empty answers: {odd['empty_answers']:,} requests have no output token (an engine rejects them)")
    if odd["empty_prompts"]:
        lines.append(f"empty prompts: {odd['empty_prompts']:,} requests have no prompt token (an engine rejects them)")
    said = log.summary()
    rows = [*(lines or ["no ties, no duplicates, no empty answers or prompts"]), *said]
    out = ["ODDITIES AND WHAT READING SAID"]
    for row in rows:
        out += textwrap.wrap(row, WIDTH + 30, initial_indent="  ", subsequent_indent="    ", break_long_words=False)
    return "\n".join(out)
