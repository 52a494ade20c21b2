"""The figures of a run, computed from the columns that its `Tally` kept.  Same run, same summary, to the byte."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sim.core.statistics import PrefixCacheStats, PrefixCachingMetrics
from sim.errors import InvariantError
from sim.recording.definitions import FIGURES, definitions
from sim.recording.latency import (
    benchmark_block,
    inter_token_gaps,
    latencies,
    latency_block,
    time_per_output_token,
)
from sim.recording.tally import FINISHED, STATUSES, Requests, Tally

_WINDOW = 1000
_HIT_RATES = [name.partition(".")[2] for name in FIGURES if name.startswith("hit_rate.")]


class Levels(NamedTuple):
    """Service levels in seconds; None = not asked for."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None


class WarmupRule(NamedTuple):
    """What counts as warm-up: a share of the requests, a number of them, or those before a time; the first given."""

    fraction: float | None = None
    requests: int | None = None
    time_s: float | None = None


def summarise(
    tally: Tally, *, total_requests: int, block_size: int, warmup: WarmupRule, slo: Levels | None
) -> dict[str, Any]:
    """All figures of a run, nested as in `summary.json`, with their definitions.

    Args:
        tally: what the run recorded.
        total_requests: requests of the workload, all of which must have ended.
        block_size: tokens, for hit rates by block.
        warmup: which requests figures after warm-up leave out.
        slo: service levels, or None when none were asked for.

    Raises:
        InvariantError: a request is missing, or its times contradict each other.
    """
    requests = tally.requests()
    if len(requests) != total_requests or not np.array_equal(requests["request_index"], np.arange(total_requests)):
        raise InvariantError(f"law 5: {total_requests} requests came and {len(requests)} rows were recorded")
    _check_times(requests)
    steps = tally.steps()
    span_s = _span(requests)
    step_s = float(steps["duration_s"].sum())
    admitted = requests.where(~np.isnan(requests["first_scheduled_s"]))
    warm = _warmup_mask(requests, warmup)
    found = latencies(requests, inter_token_gaps(tally))
    done = requests.having(FINISHED)
    good = _count_good(done, slo) if slo is not None else None
    prompt = int(admitted["prompt_tokens"].sum())
    evictions = tally.step_sums["evicted_blocks"]
    summary: dict[str, Any] = {
        "requests": {"total": total_requests}
        | {status: int(np.count_nonzero(requests.status == code)) for code, status in enumerate(STATUSES)},
        "not_finished": _reasons(tally),
        "simulated_s": span_s,
        "steps": tally.rows["steps"],
        "busy_share": _share(step_s, span_s),
        "tokens": {
            "prompt": prompt,
            "output": int(requests["output_tokens"].sum()),
            "computed_prefill": tally.step_sums["prefill_tokens"],
            "recomputed": int(requests["recomputed_tokens"].sum()),
            "encoder": tally.step_sums["encoder_tokens"],
        },
        "hit_rate": _hit_rates(requests, admitted, warm, steps, block_size),
        "warmup_requests": int(np.count_nonzero(warm)),
        "evictions": evictions,
        "evictions_per_1000_prompt_tokens": _share(1000.0 * evictions, prompt),
        "preemptions": tally.step_sums["preemptions"],
        "preempted_requests": int(np.count_nonzero(requests["preemptions"])),
        "phantom_hit_tokens": int(requests["phantom_hit_tokens"].sum()),
        "kv_usage": _over_time(steps, "kv_usage"),
        "running_requests": _over_time(steps, "running_requests"),
        "waiting_requests": _over_time(steps, "waiting_requests"),
        "latency": latency_block(found),
        "goodput": None
        if good is None
        else {
            "good_requests": good,
            "requests_per_s": _share(good, span_s),
            "share": _share(good, total_requests),
        },
        "benchmark": benchmark_block(done, found, span_s, total_requests - len(done), good),
    }
    if good is None:
        del summary["goodput"]
    summary["definitions"] = definitions()
    return summary


def _check_times(requests: Requests) -> None:
    """Arrival ≤ first scheduled ≤ first token ≤ end, as far as they exist; hits leave a token to compute."""
    for earlier, later in (
        ("arrival_s", "first_scheduled_s"),
        ("first_scheduled_s", "first_token_s"),
        ("first_token_s", "finish_s"),
        ("arrival_s", "finish_s"),
    ):
        wrong = requests[earlier] > requests[later]
        if wrong.any():
            raise InvariantError(f"law 6: request {int(np.argmax(wrong))} has {later} before {earlier}")
    wrong = (requests["cached_tokens"] > 0) & (requests["cached_tokens"] >= requests["prompt_tokens"])
    if wrong.any():
        raise InvariantError(f"law 9: request {int(np.argmax(wrong))} hit its whole prompt")


def _span(requests: Requests) -> float:
    arrivals = requests["arrival_s"][~np.isnan(requests["arrival_s"])]
    return float(requests["finish_s"].max() - arrivals.min()) if len(arrivals) else 0.0


def _reasons(tally: Tally) -> dict[str, dict[str, int]]:
    """Counts by status and reason of the requests that did not finish; numbers in reasons differ, so the first few."""
    found: dict[str, dict[str, int]] = {}
    for (status, reason), count in sorted(tally.reasons.items(), key=lambda item: (item[0][0], -item[1], item[0][1])):
        group = found.setdefault(status, {})
        if len(group) < 20:
            group[reason] = count
        else:
            group["other reasons"] = group.get("other reasons", 0) + count
    return found


def _warmup_mask(requests: Requests, rule: WarmupRule) -> npt.NDArray[np.bool_]:
    """Which requests, in order of arrival, count as warm-up."""
    index = requests["request_index"]
    if rule.time_s is not None:
        early: npt.NDArray[np.bool_] = requests["arrival_s"] < rule.time_s
        return early
    count = rule.requests if rule.requests is not None else int((rule.fraction or 0.0) * len(requests))
    mask: npt.NDArray[np.bool_] = index < count
    return mask


def _hit_rates(
    requests: Requests,
    admitted: Requests,
    warm: npt.NDArray[np.bool_],
    steps: dict[str, npt.NDArray[Any]],
    block_size: int,
) -> dict[str, float | None]:
    queries, hits = int(steps["query_tokens"].sum()), int(steps["hit_tokens"].sum())
    if not queries:
        return dict.fromkeys(_HIT_RATES)
    again, hits_again = int(steps["preempted_query_tokens"].sum()), int(steps["preempted_hit_tokens"].sum())
    hit_blocks = int((admitted["cached_tokens"] // block_size).sum())
    full_blocks = int((admitted["prompt_tokens"] // block_size).sum())
    all_blocks = int((-(-admitted["prompt_tokens"] // block_size)).sum())
    after = admitted.where(~warm[admitted["request_index"]])
    later = _steps_after_warmup(requests, warm, steps)
    both = ("query_tokens", "preempted_query_tokens"), ("hit_tokens", "preempted_hit_tokens")
    later_queries, later_hits = (sum(int(steps[name][later].sum()) for name in names) for names in both)
    return {
        "tokens": _share(hits, queries),
        "full_blocks": _share(hit_blocks, full_blocks),
        "blocks": _share(hit_blocks, all_blocks),
        "tokens_with_recomputation": _share(hits + hits_again, queries + again),
        "full_blocks_with_recomputation": _share(
            hit_blocks + hits_again / block_size, full_blocks + again / block_size
        ),
        "tokens_after_warmup": _share(int(after["cached_tokens"].sum()), int(after["prompt_tokens"].sum())),
        "full_blocks_after_warmup": _share(
            int((after["cached_tokens"] // block_size).sum()), int((after["prompt_tokens"] // block_size).sum())
        ),
        "tokens_with_recomputation_after_warmup": _share(later_hits, later_queries),
        "last_1000_requests": _recent(admitted),
    }


def _steps_after_warmup(
    requests: Requests, warm: npt.NDArray[np.bool_], steps: dict[str, npt.NDArray[Any]]
) -> npt.NDArray[np.bool_]:
    arrivals = requests["arrival_s"][~warm]
    arrivals = arrivals[~np.isnan(arrivals)]
    start = arrivals.min() if len(arrivals) else np.inf
    mask: npt.NDArray[np.bool_] = steps["start_s"] >= start
    return mask


def _recent(admitted: Requests) -> float:
    """What vLLM's log shows at the end: the metrics fed with the admissions of every step."""
    order = np.argsort(admitted["first_scheduled_s"], kind="stable")
    times = admitted["first_scheduled_s"][order]
    starts = np.flatnonzero(np.diff(times, prepend=-1.0))
    queries = np.add.reduceat(admitted["prompt_tokens"][order], starts)
    hits = np.add.reduceat(admitted["cached_tokens"][order], starts)
    counts = np.diff(starts, append=len(times))
    metrics = PrefixCachingMetrics(_WINDOW)
    for count, queried, hit in zip(counts, queries, hits, strict=True):
        metrics.observe(PrefixCacheStats(requests=int(count), queries=int(queried), hits=int(hit)))
    return metrics.hit_rate


def _over_time(steps: dict[str, npt.NDArray[Any]], name: str) -> dict[str, float | None]:
    values, weights = steps[name].astype(np.float64), steps["duration_s"]
    total = float(weights.sum())
    return {
        "mean": float((values * weights).sum() / total) if total else None,
        "max": float(values.max()) if len(values) else None,
    }


def _count_good(done: Requests, slo: Levels) -> int:
    good = np.ones(len(done), dtype=bool)
    if slo.ttft_s is not None:
        good &= done["first_token_s"] - done["arrival_s"] <= slo.ttft_s
    if slo.tpot_s is not None:
        good &= time_per_output_token(done) <= slo.tpot_s
    if slo.e2e_s is not None:
        good &= done["finish_s"] - done["arrival_s"] <= slo.e2e_s
    return int(np.count_nonzero(good))


def _share(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None
