"""When requests (or the first ones of sessions) arrive.

In YAML, one of::

    arrivals: {poisson: {rate_per_s: 5}}
    arrivals: {gamma: {rate_per_s: 5, burstiness: 0.3}}
    arrivals: {closed_loop: {clients: 32, think_s: {exponential: {mean: 10}}}}
    arrivals: all_at_once

Open arrivals are an endless, never falling series of seconds since the start of the workload.  In a
closed loop only the first request of each client has a time; every later one is released by the
end of the client's last one, after a think time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise, repeat
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
from pydantic import Field, PrivateAttr, model_validator

from workloads.distributions import MAX_SECONDS, FloatArray, Seconds, constant
from workloads.oneof import OneOf, Strict, fault

MAX_RATE = 1e6
_BATCH = 1024

Rate = Annotated[float, Field(gt=0, le=MAX_RATE)]
Duration = Annotated[float, Field(gt=0, le=MAX_SECONDS)]


class Pattern(Strict):
    """A way in which arrivals are spread over time."""

    def _times(self, rng: np.random.Generator) -> Iterator[float]:
        """Arrival times in seconds, never falling; endless unless said otherwise."""
        raise NotImplementedError


class PoissonArrivals(Pattern):
    """Independent arrivals at a constant rate."""

    rate_per_s: Rate = Field(description="mean arrivals a second")

    def _times(self, rng: np.random.Generator) -> Iterator[float]:
        return _cumulative(lambda: rng.exponential(1 / self.rate_per_s, _BATCH))


class GammaArrivals(Pattern):
    """Gaps from Gamma(shape = burstiness, scale = 1 / (rate · burstiness)), as vLLM's benchmark draws them."""

    rate_per_s: Rate = Field(description="mean arrivals a second")
    burstiness: Annotated[float, Field(gt=0, le=1e4)] = Field(
        default=1.0, description="1 = Poisson, less = burstier (gaps vary with 1/√burstiness), more = more even"
    )

    def _times(self, rng: np.random.Generator) -> Iterator[float]:
        scale = 1 / (self.rate_per_s * self.burstiness)
        return _cumulative(lambda: rng.gamma(self.burstiness, scale, _BATCH))


class ConstantArrivals(Pattern):
    """One arrival after every ``1 / rate_per_s`` seconds, the first at 0."""

    rate_per_s: Rate = Field(description="arrivals a second")

    def _times(self, rng: np.random.Generator) -> Iterator[float]:
        count = 0
        while True:
            yield count / self.rate_per_s
            count += 1


class AllAtOnce(Pattern):
    """Everything arrives together."""

    at_s: Annotated[float, Field(ge=0, le=MAX_SECONDS)] = Field(default=0.0, description="when, in seconds")

    def _times(self, rng: np.random.Generator) -> Iterator[float]:
        return repeat(self.at_s)


class OnOffArrivals(Pattern):
    """Poisson arrivals whose rate switches between two values; it begins with an on phase."""

    rate_per_s: Rate = Field(description="mean arrivals a second while on")
    off_rate_per_s: Annotated[float, Field(ge=0, le=MAX_RATE)] = Field(
        default=0.0, description="mean arrivals a second while off"
    )
    on_s: Seconds = Field(description="length of an on phase in seconds")
    off_s: Seconds = Field(description="length of an off phase in seconds")

    @model_validator(mode="after")
    def _comes_on(self) -> Self:
        if self.on_s.mean < 0.001:
            raise fault("on_s must be at least 0.001 s on average")
        return self

    def _times(self, rng: np.random.Generator) -> Iterator[float]:
        start = 0.0
        lengths = zip(self.on_s.draws(rng), self.off_s.draws(rng), strict=True)
        for on_s, off_s in lengths:
            yield from _poisson_piece(rng, self.rate_per_s, start, start + on_s)
            start += on_s
            yield from _poisson_piece(rng, self.off_rate_per_s, start, start + off_s)
            start += off_s


class DiurnalArrivals(Pattern):
    """Poisson arrivals whose rate follows the day: ``mean · (1 + amplitude · cos(2π (t − peak_s) / period_s))``."""

    mean_rate_per_s: Rate = Field(description="arrivals a second, averaged over a period")
    amplitude: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.8, description="0 = constant, 1 = silent at the lowest point"
    )
    period_s: Duration = Field(default=86_400.0, description="length of a day in seconds")
    peak_s: Annotated[float, Field(ge=0, le=MAX_SECONDS)] = Field(
        default=50_400.0, description="when the rate is highest, in seconds (default: 14 h)"
    )

    def _times(self, rng: np.random.Generator) -> Iterator[float]:
        # Thinning (Lewis and Shedler 1979): candidates at the highest rate, kept in proportion to the rate then.
        for time in _poisson_piece(rng, self.mean_rate_per_s * (1 + self.amplitude), 0.0, math.inf):
            wave = 1 + self.amplitude * math.cos(2 * math.pi * (time - self.peak_s) / self.period_s)
            if rng.random() * (1 + self.amplitude) < wave:
                yield time


class FileArrivals(Pattern):
    """Times read from a file, one a line in seconds; empty lines and ``#`` comments don't count.

    The series ends with the file.  Times out of order are sorted.
    """

    path: str = Field(description="the file")
    _sorted_times: tuple[float, ...] = PrivateAttr()
    _was_sorted: bool = PrivateAttr()

    @model_validator(mode="after")
    def _load(self) -> Self:
        times = read_times(self.path)
        self._was_sorted = all(early <= late for early, late in pairwise(times))
        self._sorted_times = tuple(times if self._was_sorted else sorted(times))
        return self

    def _times(self, rng: np.random.Generator) -> Iterator[float]:
        return iter(self._sorted_times)


class ClosedLoop(Pattern):
    """A fixed number of clients; each sends again when its last request (or session) has ended."""

    clients: Annotated[int, Field(ge=1, le=1_000_000)] = Field(description="how many")
    think_s: Seconds = Field(default=constant(0), description="pause before the next one in seconds")
    ramp_s: Annotated[float, Field(ge=0, le=MAX_SECONDS)] = Field(
        default=0.0, description="the clients' first requests are spread evenly over this time in seconds"
    )

    def _times(self, rng: np.random.Generator) -> Iterator[float]:
        for client in range(self.clients):
            yield self.ramp_s * client / self.clients


class Arrivals(OneOf):
    """When requests arrive: a mapping with one pattern, such as ``{poisson: {rate_per_s: 5}}``."""

    noun: ClassVar[str] = "arrival pattern"
    example: ClassVar[str] = "an arrival pattern such as {poisson: {rate_per_s: 5}}, or all_at_once"
    shorthands: ClassVar[tuple[dict[str, Any], ...]] = ({"const": "all_at_once"},)

    poisson: PoissonArrivals | None = Field(default=None, description=PoissonArrivals.__doc__)
    gamma: GammaArrivals | None = Field(default=None, description=GammaArrivals.__doc__)
    constant: ConstantArrivals | None = Field(default=None, description=ConstantArrivals.__doc__)
    all_at_once: AllAtOnce | None = Field(default=None, description=AllAtOnce.__doc__)
    on_off: OnOffArrivals | None = Field(default=None, description=OnOffArrivals.__doc__)
    diurnal: DiurnalArrivals | None = Field(default=None, description=DiurnalArrivals.__doc__)
    file: FileArrivals | None = Field(default=None, description="Times read from a file, one a line in seconds.")
    closed_loop: ClosedLoop | None = Field(default=None, description=ClosedLoop.__doc__)

    @classmethod
    def expand(cls, value: object) -> object:
        """The bare ``all_at_once`` stands for ``{all_at_once: {}}``."""
        return {"all_at_once": {}} if value == "all_at_once" else value

    def short(self) -> object:
        """``all_at_once`` when that is all there is to say."""
        return "all_at_once" if self.all_at_once == AllAtOnce() else None

    def times(self, rng: np.random.Generator) -> Iterator[float]:
        """Open arrival times in seconds, never falling; of a closed loop, the clients' first ones."""
        times: Iterator[float] = self.chosen._times(rng)
        return times

    @property
    def limit(self) -> int | None:
        """How many arrivals there are at most (a file's), or None."""
        return None if self.file is None else len(self.file._sorted_times)

    @property
    def out_of_order(self) -> bool:
        """Whether the times of a file had to be sorted."""
        return self.file is not None and not self.file._was_sorted


def poisson(rate_per_s: float) -> Arrivals:
    """Poisson arrivals at a rate."""
    return Arrivals(poisson=PoissonArrivals(rate_per_s=rate_per_s))


class Release(NamedTuple):
    """What releases a request: a time, or the end of request `after` and then `delay_s`."""

    arrival_s: float
    after: str | None = None
    delay_s: float = 0.0


class Releases:
    """Hands out the release of one request, or of the first one of a session, after another.

    `next` gives it (StopIteration when a file of times is used up); `ended` then says which request is
    the last of what was released, which a client of a closed loop waits for.
    """

    def __init__(self, arrivals: Arrivals, times_rng: np.random.Generator, think_rng: np.random.Generator) -> None:
        self._times = arrivals.times(times_rng)
        self._loop = arrivals.closed_loop
        self._think = self._loop.think_s.draws(think_rng) if self._loop else repeat(0.0)
        self._last: list[tuple[str, float]] = []
        self._given = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Release:
        client = self._given % self._loop.clients if self._loop else -1
        if self._loop and self._given >= self._loop.clients:
            last, start_s = self._last[client]
            release = Release(start_s, last, next(self._think))
        else:
            release = Release(next(self._times))
            if self._loop:
                self._last.append(("", release.arrival_s))
        self._given += 1
        return release

    def ended(self, request_id: str) -> None:
        """`request_id` is the last request of what was released last."""
        if self._loop:
            client = (self._given - 1) % self._loop.clients
            self._last[client] = (request_id, self._last[client][1])


def read_times(path: str) -> list[float]:
    """The numbers of a file of times, in file order.

    Raises:
        PydanticCustomError: the file cannot be read, has no time, or a line is not a number ≥ 0.
    """
    times: list[float] = []
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise fault(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    for number, line in enumerate(lines, 1):
        text = line.split("#", 1)[0].strip()
        if not text:
            continue
        try:
            time = float(text)
        except ValueError:
            time = math.nan
        if not 0 <= time <= MAX_SECONDS:
            raise fault(f"{path}:{number}: {text[:60]!r} must be one time in seconds, from 0 to {MAX_SECONDS:g}")
        times.append(time)
    if not times:
        raise fault(f"{path}: has no times; it should hold one a line, in seconds")
    return times


def _cumulative(gaps: Any) -> Iterator[float]:
    """Times from batches of gaps."""
    now = 0.0
    while True:
        batch: FloatArray = gaps()
        times = now + np.cumsum(batch)
        now = float(times[-1])
        yield from times.tolist()


def _poisson_piece(rng: np.random.Generator, rate: float, start: float, end: float) -> Iterator[float]:
    """Poisson arrivals at a constant rate in ``[start, end)``; memoryless, so pieces can be put together."""
    now = start
    while rate > 0:
        size = max(1, min(_BATCH, math.ceil(rate * (end - now) * 1.2)) if math.isfinite(end) else _BATCH)
        times = now + np.cumsum(rng.exponential(1 / rate, size))
        now = float(times[-1])
        if now >= end:
            yield from times[: int(np.searchsorted(times, end, side="left"))].tolist()
            return
        yield from times.tolist()
