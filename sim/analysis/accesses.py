"""What a cache sees of a workload: requests one after another, each a chain of block keys, no clock.

Keys are small integers.  They are *chained*: a key stands for a block and everything before it, so
it always occurs at the same place of a request and after the same predecessor.  Capacity curves rest
on that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sim.analysis.prompt_keys import PromptKeys
from sim.errors import KvsimError
from sim.eviction.facts import Origin
from workloads.spec import RequestSpec

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Accesses:
    """The block accesses of a workload, in order.

    `keys` (n) are integers ≥ 0; those of request r are ``keys[starts[r]:starts[r + 1]]``, so `starts`
    has one entry more than there are requests.  `tokens` (n) is how many tokens each block holds:
    `block_size`, or less for a partial last block.  `origins` has one entry per request, or none.

    Raises:
        KvsimError: the keys are not chained.
    """

    keys: IntArray
    starts: IntArray
    tokens: IntArray
    block_size: int
    origins: Sequence[Origin] = field(default=())

    def __post_init__(self) -> None:
        repeated = np.flatnonzero(self.previous >= 0)
        before = self.previous[repeated]
        inner = self.position[repeated] > 0
        same_place = self.position[repeated] == self.position[before]
        same_parent = ~inner | (self.keys[repeated - 1] == self.keys[before - 1])
        wrong = np.flatnonzero(~(same_place & same_parent))
        if len(wrong):
            at = int(repeated[wrong[0]])
            raise KvsimError(
                f"key {self.keys[at]} of request {self.request[at]}, block {self.position[at]}, came before at another "
                "place or after another block: keys must be chained, each standing for the whole prefix up to its block"
            )

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def num_requests(self) -> int:
        """Number of requests, those without a block included."""
        return len(self.starts) - 1

    @cached_property
    def num_keys(self) -> int:
        """Number of different keys: the blocks that an infinite cache holds in the end."""
        return int(self.keys.max()) + 1 if len(self.keys) else 0

    @cached_property
    def request(self) -> IntArray:
        """The request of each access."""
        return np.repeat(np.arange(self.num_requests), np.diff(self.starts))

    @cached_property
    def position(self) -> IntArray:
        """The place of each access in its request, from 0."""
        return np.arange(len(self.keys)) - np.repeat(self.starts[:-1], np.diff(self.starts))

    @cached_property
    def previous(self) -> IntArray:
        """Index of the access before that had the same key, or -1."""
        result = np.full(len(self.keys), -1, dtype=np.int64)
        if len(self.keys):
            order = np.argsort(self.keys, kind="stable")
            same = np.flatnonzero(self.keys[order[1:]] == self.keys[order[:-1]])
            result[order[same + 1]] = order[same]
        return result

    @cached_property
    def following(self) -> IntArray:
        """Index of the next access with the same key, or the number of accesses where there is none."""
        result = np.full(len(self.keys), len(self.keys), dtype=np.int64)
        repeated = np.flatnonzero(self.previous >= 0)
        result[self.previous[repeated]] = repeated
        return result


def accesses_from_keys(
    requests: Iterable[Sequence[int]],
    block_size: int = 1,
    last_tokens: Sequence[int] | None = None,
    origins: Sequence[Origin] = (),
) -> Accesses:
    """Accesses from each request's chained ids; `last_tokens` is the length of each request's last block.

    >>> len(accesses_from_keys([[0, 1], [0, 1, 2]]))
    5
    """
    rows = [list(row) for row in requests]
    ids = np.array([key for row in rows for key in row], dtype=np.int64)
    return _assemble(ids, [len(row) for row in rows], block_size, last_tokens, origins)


def accesses_from_specs(
    specs: Iterable[RequestSpec], block_size: int, *, full_blocks_only: bool = False
) -> tuple[Accesses, int]:
    """The prompts of `specs` in blocks of `block_size` tokens, in the order given.

    The partial last block of a prompt counts as a block, found again by a prompt that ends in just the same way,
    unless `full_blocks_only`.  Answers are not accesses.

    Returns:
        the accesses, and how many requests had no block at all.

    Raises:
        KvsimError: the block size is below 1.
    """
    keys = PromptKeys(block_size, full_blocks_only=full_blocks_only)
    origins: list[Origin] = []
    for spec in specs:
        keys.add(spec)
        origins.append(Origin(spec.category, spec.session, spec.turn))
    accesses = _assemble(keys.fingerprints(), keys.counts, block_size, keys.last_tokens, origins)
    return accesses, keys.counts.count(0)


def _assemble(
    ids: npt.NDArray[np.int64] | npt.NDArray[np.uint64],
    counts: Sequence[int],
    block_size: int,
    last_tokens: Sequence[int] | None,
    origins: Sequence[Origin],
) -> Accesses:
    starts = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    keys = np.unique(ids, return_inverse=True)[1].astype(np.int64).reshape(-1)
    tokens = np.full(len(keys), block_size, dtype=np.int64)
    if last_tokens is not None:
        filled = np.diff(starts) > 0
        tokens[starts[1:][filled] - 1] = np.asarray(last_tokens, dtype=np.int64)[filled]
    return Accesses(keys, starts, tokens, block_size, tuple(origins))
