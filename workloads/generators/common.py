"""What generators share: named randomness, request ids, releases and the settings that all have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from workloads.arrivals import Arrivals, Release, Releases, poisson
from workloads.distributions import MAX_POOL, Distribution, rank_draws
from workloads.log import ReadLog
from workloads.oneof import Strict
from workloads.spec import mix64, stream_id

Total = Annotated[int, Field(ge=1, le=1_000_000_000)]
PoolSize = Annotated[int, Field(ge=1, le=MAX_POOL)]
ZipfExponent = Annotated[float, Field(ge=0, le=10)]
Share = Annotated[float, Field(ge=0, le=1)]


class RequestParams(Strict):
    """Settings of generators whose requests are independent of each other."""

    requests: Total = Field(default=1000, description="number of requests")
    arrivals: Arrivals = Field(default=poisson(1), description="when requests arrive")

    def expected_requests(self) -> int | None:
        """How many requests there will be, or None if that is left to chance."""
        limit = self.arrivals.limit
        return self.requests if limit is None else min(limit, self.requests)


class SessionParams(Strict):
    """Settings of generators that make sessions of several requests."""

    sessions: Total = Field(default=100, description="number of sessions")
    arrivals: Arrivals = Field(
        default=poisson(0.1), description="when sessions arrive (closed loop: each client has one session at a time)"
    )

    def expected_requests(self) -> int | None:
        """How many requests there will be, or None if that is left to chance."""
        return None


class Randomness:
    """Everything random and every identity of one generator, by name.

    A purpose has a `numpy.random.Generator` of its own, so a draw added in one place moves nothing
    elsewhere.  Streams differ between workloads and seeds.
    """

    def __init__(self, seed: np.random.SeedSequence, kind: str) -> None:
        self._seed = seed
        self._space = stream_id(kind, int(seed.generate_state(1, np.uint64)[0]))

    def rng(self, purpose: str) -> np.random.Generator:
        """A fresh generator for `purpose`: the same numbers whenever it is asked for."""
        key = (*self._seed.spawn_key, stream_id(purpose))
        return np.random.default_rng(np.random.SeedSequence(self._seed.entropy, spawn_key=key))

    def stream(self, *parts: int | str) -> int:
        """The number of the token stream with this name."""
        return stream_id(self._space, *parts)

    def draws(self, purpose: str, distribution: Distribution, least: int = 0) -> Iterator[int]:
        """Endless whole numbers ≥ `least`."""
        return distribution.whole_draws(self.rng(purpose), least)

    def seconds(self, purpose: str, distribution: Distribution) -> Iterator[float]:
        """Endless intervals."""
        return distribution.draws(self.rng(purpose))

    def ranks(self, purpose: str, count: int, exponent: float) -> Iterator[int]:
        """Endless choices among `count` things by Zipf popularity; 0 is the most popular."""
        return rank_draws(self.rng(purpose), count, exponent)

    def pool(self, purpose: str, distribution: Distribution, count: int, least: int = 0) -> list[int]:
        """One whole number ≥ `least` for each of `count` things."""
        values: list[int] = distribution.sample_whole(self.rng(purpose), count, least).tolist()
        return values

    def releases(self, arrivals: Arrivals, count: int, log: ReadLog) -> Iterator[tuple[int, Release, Releases]]:
        """Index, release and source of releases of up to `count` requests or sessions.

        A file of times that ends too early or is out of order is said to `log`.
        """
        source = Releases(arrivals, self.rng("arrivals"), self.rng("think times of clients"))
        if arrivals.out_of_order:
            log.warn("the times of the arrivals file were not in order; they were sorted")
        if arrivals.limit is not None and arrivals.limit < count:
            log.warn(f"the arrivals file has {arrivals.limit:,} times; that many of {count:,} were made")
        for index, release in zip(range(count), source):  # noqa: B905 the shorter one ends it
            yield index, release, source


class Streams:
    """Token streams numbered from 0, none like another: one for each text, answer or system prompt."""

    def __init__(self, randomness: Randomness, name: str) -> None:
        self._base = randomness.stream(name)

    def __getitem__(self, number: int) -> int:
        return mix64(self._base ^ mix64(number)) >> 1


def distinct(ranks: Iterator[int], count: int, pool: int) -> list[int]:
    """`count` different ranks in the order in which they are drawn; `count` must not exceed `pool`.

    If the draws hardly bring anything new, the most popular ranks not yet taken fill up.
    """
    chosen: dict[int, None] = {}
    for _ in range(64 * count):
        if len(chosen) == count:
            break
        chosen[next(ranks)] = None
    for rank in range(pool):
        if len(chosen) == count:
            break
        chosen[rank] = None
    return list(chosen)


def shuffled_groups(rng: np.random.Generator, groups: int, each: int, shuffle: bool) -> Iterator[int]:
    """Every group `each` times, shuffled or group after group."""
    order = np.arange(groups * each)
    if shuffle:
        rng.shuffle(order)
    for start in range(0, len(order), 1024):
        yield from (order[start : start + 1024] // each).tolist()
