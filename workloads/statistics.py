"""What is in a workload: how many requests, when, how long, from whom, and what is odd about them.

One pass over the requests, some tens of bytes each.  Reuse of prefixes is another matter
(`sim.analysis.reuse`).
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from workloads.spec import RequestSpec, TokenIds, mix64

Floats = npt.NDArray[np.float64]
WINDOWS = 24
_MASK = (1 << 64) - 1

DEFINITIONS = {
    "span_s": "from the first arrival to the last",
    "rate_per_s": "requests less one / span",
    "interval_cv": "standard deviation / mean of the intervals between arrivals: 1 for Poisson, more is burstier, "
    "0 for a clock",
    "dispersion": "variance / mean of the arrivals per second: 1 for Poisson at any rate",
    "peak_per_s": "most arrivals within one second of the grid that begins with the first arrival",
    "nominal_time": "a request that follows another counts at that one's time plus the think time, as if answers "
    "took no time: a lower bound",
    "duplicate_requests": "requests whose prompt and answer length equal an earlier request's",
    "duplicate_sessions": "sessions of two or more requests whose sequence of prompt and answer lengths equals "
    "another session's",
    "p95": "95 % of the requests are at most so long (interpolated between neighbours, as numpy and pandas do)",
}


class WorkloadStatistics:
    """Collects everything but reuse, request by request."""

    def __init__(self) -> None:
        self._times = array("d")
        self._prompt = array("q")
        self._output = array("q")
        self._nominal: dict[str, float] = {}
        self._followers = 0
        self._think_s = array("d")
        self._sessions: dict[str, tuple[int, int]] = {}
        self._categories: dict[str, list[int]] = {}
        self._loras: Counter[str] = Counter()
        self._salts: Counter[str] = Counter()
        self._images: set[int] = set()  # hashes of identifiers
        self._image_count = 0
        self._image_requests = 0
        self._image_tokens = 0
        self._priorities: Counter[int] = Counter()
        self._aborts = 0
        self._seen: set[int] = set()
        self._duplicates = 0

    def add(self, spec: RequestSpec) -> None:
        """Take the next request."""
        time = spec.arrival_s
        if spec.after is not None:
            self._followers += 1
            self._think_s.append(spec.delay_s)
            time = max(time, self._nominal.get(spec.after, time) + spec.delay_s)
        if spec.session is not None or spec.after is not None:
            self._nominal[spec.request_id] = time
        prompt, output = spec.prompt_tokens, spec.output_tokens
        self._times.append(time)
        self._prompt.append(prompt)
        self._output.append(output)
        if spec.session is not None:
            count, signature = self._sessions.get(spec.session, (0, 0))
            self._sessions[spec.session] = count + 1, mix64(signature ^ (prompt << 32 | output) & _MASK)
        row = self._categories.setdefault(spec.category, [0, 0, 0])
        row[0] += 1
        row[1] += prompt
        row[2] += output
        if spec.lora is not None:
            self._loras[spec.lora.name] += 1
        if spec.cache_salt is not None:
            self._salts[spec.cache_salt] += 1
        if spec.mm_items:
            self._image_requests += 1
            for item in spec.mm_items:
                self._images.add(hash(item.identifier))
                self._image_count += 1
                self._image_tokens += item.length
        self._priorities[spec.priority] += 1
        self._aborts += spec.abort_after_s is not None
        content = content_hash(spec)
        if content in self._seen:
            self._duplicates += 1
        else:
            self._seen.add(content)

    def lengths(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Prompt and output tokens of every request, in order."""
        return np.array(self._prompt, dtype=np.int64), np.array(self._output, dtype=np.int64)

    def times(self) -> Floats:
        """Arrival (for closed loops: `nominal_time`) of every request, in order, in seconds."""
        return np.array(self._times, dtype=np.float64)

    def result(self) -> dict[str, Any]:
        """All figures as plain numbers."""
        prompt, output = self.lengths()
        groups = Counter(self._sessions.values())
        repeated = [(key[0], n) for key, n in groups.items() if n > 1 and key[0] > 1]
        turns = np.array([count for count, _ in self._sessions.values()], dtype=np.int64)
        return {
            "requests": len(prompt),
            "closed_loop_requests": self._followers,
            "think_s": length_figures(np.array(self._think_s)) if self._followers else None,
            "prompt_tokens": length_figures(prompt),
            "output_tokens": length_figures(output),
            "arrivals": arrival_figures(self.times()),
            "sessions": {
                "count": len(turns),
                "requests_without_session": len(prompt) - int(turns.sum()),
                "requests_per_session": length_figures(turns) if len(turns) else None,
            },
            "categories": {
                name: {"requests": row[0], "prompt_tokens": row[1], "output_tokens": row[2]}
                for name, row in sorted(self._categories.items(), key=lambda item: -item[1][0])
            },
            "features": {
                "lora_adapters": len(self._loras),
                "lora_requests": self._loras.total(),
                "cache_salts": len(self._salts),
                "salted_requests": self._salts.total(),
                "image_requests": self._image_requests,
                "images": self._image_count,
                "distinct_images": len(self._images),
                "image_tokens": self._image_tokens,
                "priorities": len(self._priorities),
                "requests_with_abort": self._aborts,
            },
            "oddities": {
                "ties": tie_figures(self.times()),
                "duplicate_requests": self._duplicates,
                "duplicate_sessions": sum(n for _, n in repeated),
                "duplicate_session_groups": len(repeated),
                "empty_prompts": int(np.count_nonzero(prompt == 0)),
                "empty_answers": int(np.count_nonzero(output == 0)),
            },
            "definitions": DEFINITIONS,
        }


def content_hash(spec: RequestSpec) -> int:
    """Equal for requests of equal prompt (with LoRA, salt, images) and answer length; of this process only."""
    parts: list[object] = [spec.output_tokens, spec.lora, spec.cache_salt, spec.mm_items]
    parts += [(-1, hash(piece.ids.tobytes())) if isinstance(piece, TokenIds) else tuple(piece) for piece in spec.prompt]
    return hash(tuple(parts))


def length_figures(values: npt.NDArray[Any]) -> dict[str, float]:
    """Mean, median, p95, p99, least, greatest and sum."""
    if not len(values):
        return {}
    median, p95, p99 = np.percentile(values, (50, 95, 99)).tolist()
    return {
        "mean": float(values.mean()),
        "median": median,
        "p95": p95,
        "p99": p99,
        "min": number(values.min()),
        "max": number(values.max()),
        "total": number(values.sum()),
    }


def number(value: Any) -> float:
    """A numpy scalar as Python's int or float."""
    return int(value) if isinstance(value, np.integer) else float(value)


def arrival_figures(times: Floats, windows: int = WINDOWS) -> dict[str, Any]:
    """Span, rate and burstiness, over all and in equal windows."""
    if not len(times):
        return {}
    ordered = np.sort(times)
    span = float(ordered[-1] - ordered[0])
    out: dict[str, Any] = {
        "first_s": float(ordered[0]),
        "last_s": float(ordered[-1]),
        "span_s": span,
        "rate_per_s": (len(times) - 1) / span if span > 0 else None,
        "interval_cv": interval_cv(ordered),
        "dispersion": None,
        "peak_per_s": None,
        "windows": [],
    }
    if span <= 0:
        return out
    # seconds that have arrivals, and their counts; the others have none
    _, counts = np.unique(np.floor(ordered - ordered[0]).astype(np.int64), return_counts=True)
    seconds = int(span) + 1
    mean = len(times) / seconds
    out["dispersion"] = float((np.sum(counts.astype(np.float64) ** 2) / seconds - mean**2) / mean)
    out["peak_per_s"] = int(counts.max())
    edges = ordered[0] + span * np.arange(windows + 1) / windows
    cuts = [*np.searchsorted(ordered, edges[:-1], side="left").tolist(), len(ordered)]
    for index in range(windows):
        part = ordered[cuts[index] : cuts[index + 1]]
        out["windows"].append(
            {
                "start_s": float(edges[index]),
                "requests": len(part),
                "rate_per_s": len(part) * windows / span,
                "interval_cv": interval_cv(part),
            }
        )
    return out


def interval_cv(ordered: Floats) -> float | None:
    """Coefficient of variation of the intervals; None when there are fewer than two, or all are 0."""
    gaps = np.diff(ordered)
    if len(gaps) < 2 or gaps.mean() <= 0:
        return None
    return float(gaps.std() / gaps.mean())


def tie_figures(times: Sequence[float] | Floats) -> dict[str, int]:
    """How many requests arrive at just the time of another one before them, and the most at one time."""
    _, counts = np.unique(np.asarray(times, dtype=np.float64), return_counts=True)
    if not len(counts):
        return {"requests": 0, "times": 0, "most_at_once": 0}
    return {
        "requests": int((counts - 1).sum()),
        "times": int(np.count_nonzero(counts > 1)),
        "most_at_once": int(counts.max()),
    }
