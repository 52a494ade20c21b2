"""Changing a stream of requests: cut, scale, fit, repeat and label it.

The steps are applied in this order, whatever their order in the YAML: `window`, `limit`,
`rate_scale`, `fit`, `repeat`, `start_s`, then category, priority and patience.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from workloads.distributions import MAX_SECONDS
from workloads.errors import WorkloadError
from workloads.fitting import fit_length, scale_lengths
from workloads.log import ReadLog
from workloads.oneof import Strict, fault
from workloads.spec import MultiModalItem, Piece, RequestSpec, TokenIds, mix64

Source = Callable[[ReadLog], Iterator[RequestSpec]]
Time = Annotated[float, Field(ge=0, le=MAX_SECONDS)]


class Window(Strict):
    """Which part of a workload to keep: requests that arrive in ``[start_s, end_s)``; the start becomes 0."""

    start_s: Time = Field(default=0.0, description="first second that is kept")
    end_s: Time | None = Field(default=None, description="first second that is not; null = all the rest")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.end_s is not None and self.end_s <= self.start_s:
            raise fault(f"end_s ({self.end_s:g}) must be later than start_s ({self.start_s:g})")
        return self


class Fit(Strict):
    """What to do with requests whose prompt and answer together exceed a length."""

    how: Literal["cap", "scale", "drop"] = Field(
        default="cap",
        description="cap: shorten the answer to what the prompt leaves, but not below half of the length, then cut "
        "the end of the prompt; scale: multiply all lengths of the workload by the factor with which the longest "
        "request fits; drop: leave the request and its successors out",
    )
    max_model_len: Annotated[int, Field(ge=2)] | None = Field(
        default=None, description="the length in tokens; null = the engine's max_model_len"
    )


class Repeat(Strict):
    """Copies of the whole workload whose contents share nothing with each other."""

    times: Annotated[int, Field(ge=1, le=10_000)] = Field(description="how often the workload is run in all")
    every_s: Annotated[float, Field(gt=0, le=MAX_SECONDS)] | None = Field(
        default=None,
        description="seconds from the start of one copy to the next (they may overlap); null = one after another",
    )


class Shaping(Strict):
    """What can be done with any workload, traced or generated."""

    window: Window | None = Field(default=None, description=Window.__doc__)
    limit: Annotated[int, Field(ge=1)] | None = Field(default=None, description="keep only this many requests")
    rate_scale: Annotated[float, Field(gt=0, le=1e6)] = Field(
        default=1.0, description="2 = twice the rate: arrival times are divided by it; think times are left alone"
    )
    fit: Fit | None = Field(default=None, description=Fit.__doc__)
    repeat: Repeat | None = Field(default=None, description=Repeat.__doc__)
    start_s: Time = Field(default=0.0, description="seconds after which the workload begins")
    priority: int | None = Field(
        default=None, description="priority of every request (smaller goes first); null = as the workload says"
    )
    abort_after_s: Annotated[float, Field(gt=0, le=MAX_SECONDS)] | None = Field(
        default=None, description="seconds after arrival at which the client gives up; null = as the workload says"
    )

    def changes_count(self) -> bool:
        """Whether the number of requests can no longer be told beforehand."""
        return self.window is not None or (self.fit is not None and self.fit.how == "drop")


def shape(
    source: Source,
    shaping: Shaping,
    log: ReadLog,
    *,
    category: str | None = None,
    default_category: str = "",
    max_model_len: int | None = None,
) -> Iterator[RequestSpec]:
    """The requests of `source` with everything that `shaping` asks for.

    Args:
        source: opens the stream; called once for each copy, the first time with `log`.
        shaping: what to do.
        log: receives what was changed or left out.
        category: given to every request; None = each keeps its own.
        default_category: given to requests that have none.
        max_model_len: length for `fit` where that names none; None there = nothing to fit.
    """

    def cut(log: ReadLog) -> Iterator[RequestSpec]:
        specs = source(log)
        if shaping.window is not None:
            specs = cut_window(specs, shaping.window.start_s, shaping.window.end_s, log)
        if shaping.limit is not None:
            specs = cut_limit(specs, shaping.limit, log)
        return specs

    def one_pass(log: ReadLog) -> Iterator[RequestSpec]:
        specs = cut(log)
        if shaping.rate_scale != 1:
            specs = scale_rate(specs, shaping.rate_scale)
        if shaping.fit is None:
            return specs
        length = shaping.fit.max_model_len or max_model_len
        if length is None:
            return specs
        if shaping.fit.how == "scale":
            specs = scale_lengths(specs, lambda: cut(silent(log)), length, log)
        return fit_length(specs, length, "drop" if shaping.fit.how == "drop" else "cap", log)

    if shaping.repeat is None:
        specs = one_pass(log)
    else:
        specs = repeat(one_pass, shaping.repeat.times, shaping.repeat.every_s, log)
    return _finish(specs, shaping, category, default_category)


def silent(log: ReadLog) -> ReadLog:
    """A log like `log` that nobody reads, for reading the same requests once more."""
    return ReadLog(skip_bad_lines=log.skip_bad_lines)


def merge(streams: Iterable[Iterable[RequestSpec]]) -> Iterator[RequestSpec]:
    """Several streams as one, by arrival; ties go to the earlier stream, then to its own order.

    A request that follows another stands directly behind what its own stream had before it.

    Raises:
        WorkloadError: a stream is not in order of arrival.
    """
    keyed = (_keyed(stream, number) for number, stream in enumerate(streams))
    return (spec for *_, spec in heapq.merge(*keyed))


def cut_window(
    specs: Iterable[RequestSpec], start_s: float, end_s: float | None, log: ReadLog
) -> Iterator[RequestSpec]:
    """Requests that arrive in ``[start_s, end_s)`` and all that follow them; `start_s` becomes 0."""
    kept: set[str] = set()
    for spec in specs:
        if spec.after is None:
            keep = start_s <= spec.arrival_s and (end_s is None or spec.arrival_s < end_s)
        else:
            keep = spec.after in kept
        if not keep:
            log.skip("outside the window", 1, spec.source)
            continue
        kept.add(spec.request_id)
        yield replace(spec, arrival_s=max(spec.arrival_s - start_s, 0.0)) if start_s else spec


def cut_limit(specs: Iterable[RequestSpec], most: int, log: ReadLog) -> Iterator[RequestSpec]:
    """The first `most` requests; no more are read than one beyond, to say whether there are any."""
    for number, spec in enumerate(specs):
        if number == most:
            log.note(f"cut after the first {most:,} requests, as limit says; there are more")
            return
        yield spec


def scale_rate(specs: Iterable[RequestSpec], factor: float) -> Iterator[RequestSpec]:
    """Arrival times divided by `factor`."""
    for spec in specs:
        yield replace(spec, arrival_s=spec.arrival_s / factor)


def repeat(source: Source, times: int, every_s: float | None, log: ReadLog) -> Iterator[RequestSpec]:
    """`times` copies of a workload, each with identities of its own.

    Copies start `every_s` apart, or, if that is None, each one mean gap after the last arrival of the one before.
    """
    if every_s is not None:
        logs = [log, *(silent(log) for _ in range(1, times))]
        yield from merge(_shift(freshen(source(own), n), n * every_s) for n, own in enumerate(logs))
        return
    offset = 0.0
    for copy in range(times):
        count, last = 0, 0.0
        for spec in _shift(freshen(source(log if copy == 0 else silent(log)), copy), offset):
            if spec.after is None:
                count, last = count + 1, spec.arrival_s
            yield spec
        if last == offset and copy == 0 and times > 1:
            log.warn("the copies of repeat arrive together, because all arrive at once; every_s would set them apart")
        offset = last + ((last - offset) / (count - 1) if count > 1 else 0.0)


def freshen(specs: Iterable[RequestSpec], copy: int) -> Iterator[RequestSpec]:
    """The same requests with contents, images and names that no other copy has; copy 0 is unchanged.

    Literal token ids are mapped one to one, so that equal prompts of a copy stay equal.  Adapters and salts stay.
    """
    if not copy:
        yield from specs
        return
    salt = mix64(copy)
    end = f"~{copy}"
    for spec in specs:
        yield replace(
            spec,
            request_id=spec.request_id + end,
            prompt=tuple(_fresh_piece(piece, salt) for piece in spec.prompt),
            answer_stream=_fresh_stream(spec.answer_stream, salt),
            session=None if spec.session is None else spec.session + end,
            after=None if spec.after is None else spec.after + end,
            mm_items=tuple(MultiModalItem(i.identifier + end, i.offset, i.length) for i in spec.mm_items),
        )


def _keyed(specs: Iterable[RequestSpec], stream: int) -> Iterator[tuple[float, int, int, RequestSpec]]:
    now = 0.0
    for number, spec in enumerate(specs):
        if spec.after is None:
            if spec.arrival_s < now:
                raise WorkloadError(
                    f"{spec.source or spec.request_id}: arrives at {spec.arrival_s:g} s, before the request that "
                    f"precedes it ({now:g} s); requests must be in order of arrival"
                )
            now = spec.arrival_s
        yield now, stream, number, spec


def _shift(specs: Iterable[RequestSpec], offset_s: float) -> Iterator[RequestSpec]:
    if not offset_s:
        yield from specs
        return
    for spec in specs:
        yield replace(spec, arrival_s=spec.arrival_s + offset_s)


def _fresh_stream(stream: int, salt: int) -> int:
    return mix64(stream ^ salt) >> 1


def _fresh_piece(piece: Piece, salt: int) -> Piece:
    if isinstance(piece, TokenIds):
        return TokenIds(piece.ids ^ (salt >> 33))
    return piece._replace(stream=_fresh_stream(piece.stream, salt))


def _finish(
    specs: Iterator[RequestSpec], shaping: Shaping, category: str | None, default_category: str
) -> Iterator[RequestSpec]:
    """Start, category, priority and patience; a request that changes in nothing is passed on as it is."""
    for spec in specs:
        changes: dict[str, Any] = {}
        wanted = category if category is not None else spec.category or default_category
        if spec.category != wanted:
            # The stream has just made this request for us: naming its category in place costs a hundredth of a copy.
            object.__setattr__(spec, "category", wanted)
        if shaping.start_s:
            changes["arrival_s"] = spec.arrival_s + shaping.start_s
        if shaping.priority is not None:
            changes["priority"] = shaping.priority
        if shaping.abort_after_s is not None:
            changes["abort_after_s"] = shaping.abort_after_s
        yield replace(spec, **changes) if changes else spec
