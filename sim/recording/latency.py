"""Latencies under the names of vLLM's metrics, and of the result file of its serving benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sim.recording.tally import FINISHED, Requests, Tally

FloatArray = npt.NDArray[np.float64]


class Sample(NamedTuple):
    """Values with how often each was seen."""

    values: FloatArray
    counts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, values: FloatArray) -> Sample:
        """Each value once."""
        return cls(values, np.ones(len(values), dtype=np.int64))


def percentiles(sample: Sample, shares: Sequence[float]) -> list[float]:
    """Percentiles of the sample, interpolated linearly between neighbours as `numpy.percentile` does.

    The sample is never unfolded, so a value may count millions of times.
    """
    order = np.argsort(sample.values, kind="stable")
    values, ends = sample.values[order], np.cumsum(sample.counts[order])
    ranks = np.array(shares) * (int(ends[-1]) - 1)
    low = np.floor(ranks)
    at = values[np.searchsorted(ends, low, side="right")]
    after = values[np.searchsorted(ends, np.minimum(low + 1, ends[-1] - 1), side="right")]
    return [float(value) for value in at + (after - at) * (ranks - low)]


def spread(sample: Sample) -> dict[str, float | int | None]:
    """Count, mean, standard deviation, median, p90, p99 and maximum; None where there is nothing."""
    total = int(sample.counts.sum())
    if not total:
        return {"count": 0} | dict.fromkeys(("mean", "std", "median", "p90", "p99", "max"))
    mean = float((sample.values * sample.counts).sum() / total)
    variance = float(((sample.values - mean) ** 2 * sample.counts).sum() / total)
    median, p90, p99 = percentiles(sample, (0.5, 0.9, 0.99))
    return {
        "count": total,
        "mean": mean,
        "std": variance**0.5,
        "median": median,
        "p90": p90,
        "p99": p99,
        "max": float(sample.values.max()),
    }


class Latencies(NamedTuple):
    """Seconds per request (or per token) of the requests that finished."""

    ttft: Sample
    tpot: Sample
    itl: Sample
    e2e: Sample
    queue: Sample
    prefill: Sample
    decode: Sample
    inference: Sample


METRICS = {
    "ttft": "vllm:time_to_first_token_seconds",
    "tpot": "vllm:request_time_per_output_token_seconds",
    "itl": "vllm:inter_token_latency_seconds",
    "e2e": "vllm:e2e_request_latency_seconds",
    "queue": "vllm:request_queue_time_seconds",
    "prefill": "vllm:request_prefill_time_seconds",
    "decode": "vllm:request_decode_time_seconds",
    "inference": "vllm:request_inference_time_seconds",
}
BENCHMARK = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e": "e2el"}


def latencies(requests: Requests, itl: Sample) -> Latencies:
    """Latencies of the finished ones among `requests`; `itl` is made from steps, see `inter_token_gaps`."""
    done = requests.having(FINISHED)
    arrival, scheduled, first, end = (
        done[name] for name in ("arrival_s", "first_scheduled_s", "first_token_s", "finish_s")
    )
    several = done["output_tokens"] > 1
    return Latencies(
        ttft=Sample.of(first - arrival),
        tpot=Sample.of(time_per_output_token(done)[several]),
        itl=itl,
        e2e=Sample.of(end - arrival),
        queue=Sample.of(scheduled - arrival),
        prefill=Sample.of(first - scheduled),
        decode=Sample.of(end - first),
        inference=Sample.of(end - scheduled),
    )


def time_per_output_token(done: Requests) -> FloatArray:
    """Seconds per token after the first; 0 for a single token."""
    span: FloatArray = (done["finish_s"] - done["first_token_s"]) / np.maximum(done["output_tokens"] - 1, 1)
    return span


def inter_token_gaps(tally: Tally) -> Sample:
    """Time between a token and the one before it of the same request, over all requests, aborted ones too.

    A decode request gets a token at the end of each step, so its gap is the time from the end of the
    step before; the exceptions (after a preemption, or when it was passed over) are in `stalls`.
    Such a late token may have been a decode request of its step (passed over) or the end of a chunk
    (after a preemption).  How many were which follows from the number of all tokens; where both
    kinds occur, the shorter gaps are taken for those that were passed over.
    """
    steps, stalls, requests = tally.steps(), tally.stalls(), tally.requests()
    ends = steps["start_s"] + steps["duration_s"]
    gaps = np.diff(ends, prepend=steps["start_s"][:1])
    counts = steps["decode_requests"].astype(np.int64)
    late = stalls["gap_s"]
    tokens = int(np.maximum(requests["output_tokens"] - 1, 0).sum())
    passed_over = min(max(int(counts.sum()) + len(late) - tokens, 0), len(late))
    decoding = stalls["step"][np.argsort(late, kind="stable")[:passed_over]]
    np.subtract.at(counts, decoding, 1)
    seen = counts > 0
    values = np.concatenate([gaps[seen], late])
    weights = np.concatenate([counts[seen], np.ones(len(late), dtype=np.int64)])
    unique, inverse = np.unique(values, return_inverse=True)
    return Sample(unique, np.bincount(inverse, weights, minlength=len(unique)).astype(np.int64))


def latency_block(found: Latencies) -> dict[str, dict[str, float | int | None]]:
    """The spread of each latency in seconds, under the name of vLLM's metric."""
    return {METRICS[name]: spread(sample) for name, sample in found._asdict().items()}


def benchmark_block(
    done: Requests, found: Latencies, duration_s: float, failed: int, good: int | None
) -> dict[str, Any]:
    """The figures under the names of the benchmark's result file; times in milliseconds, rates per second."""
    total_input, total_output = int(done["prompt_tokens"].sum()), int(done["output_tokens"].sum())
    block: dict[str, Any] = {
        "duration": duration_s,
        "completed": len(done),
        "failed": failed,
        "total_input_tokens": total_input,
        "total_output_tokens": total_output,
        "request_throughput": _rate(len(done), duration_s),
        "request_goodput": None if good is None else _rate(good, duration_s),
        "output_throughput": _rate(total_output, duration_s),
        "total_token_throughput": _rate(total_input + total_output, duration_s),
    }
    for name, short in BENCHMARK.items():
        figures = spread(getattr(found, name))
        for figure in ("mean", "median", "std", "p90", "p99"):
            value = figures[figure]
            block[f"{figure}_{short}_ms"] = None if value is None else value * 1000.0
    return block


def _rate(amount: int, duration_s: float) -> float | None:
    return amount / duration_s if duration_s > 0 else None
