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
from sim.eviction.origin import Origin
from workloads.spec import RequestSpec

IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]

MOST_ACCESSES = (1 << 31) - 1


@dataclass(frozen=True)
class Accesses:
    """The block accesses of a workload, in order.  Arrays have 32 bits: traces of coding agents have 10⁸ accesses.

    `keys` (n) are integers ≥ 0; those of request r are ``keys[starts[r]:starts[r + 1]]``, so `starts` has one entry
    more than there are requests.  `previous` (n) is the index of the access before that had the same key, or -1.
    `last_tokens` (one per request) is how many tokens the request's last block holds; all others hold `block_size`.
    `origins` has one entry per request, or none.
    """

    keys: Int32Array
    previous: Int32Array
    starts: IntArray
    last_tokens: IntArray
    block_size: int
    origins: Sequence[Origin] = field(default=())

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
    def request(self) -> Int32Array:
        """The request of each access."""
        return np.repeat(np.arange(self.num_requests, dtype=np.int32), np.diff(self.starts))

    @cached_property
    def position(self) -> Int32Array:
        """The place of each access in its request, from 0."""
        before = np.repeat(self.starts[:-1].astype(np.int32), np.diff(self.starts))
        return np.arange(len(self.keys), dtype=np.int32) - before

    @cached_property
    def has_next(self) -> BoolArray:
        """Whether the key of each access comes again."""
        result = np.zeros(len(self.keys) + 1, dtype=np.bool_)
        result[self.previous] = True  # -1, for none, is the entry too many
        return result[:-1]

    @cached_property
    def partial(self) -> IntArray:
        """Indices of the accesses whose block is not full."""
        short = (self.last_tokens < self.block_size) & (np.diff(self.starts) > 0)
        return self.starts[1:][short] - 1

    @property
    def tokens(self) -> IntArray:
        """Tokens in each block."""
        result = np.full(len(self.keys), self.block_size, dtype=np.int64)
        result[self.partial] = self.last_tokens[self.request[self.partial]]
        return result

    @property
    def prompt_tokens(self) -> int:
        """Tokens in all blocks."""
        short = self.block_size - self.last_tokens[self.request[self.partial]]
        return len(self.keys) * self.block_size - int(short.sum())

    def check(self) -> None:
        """Raise `KvsimError` unless the keys are chained."""
        repeated = np.flatnonzero(self.previous >= 0)
        before = self.previous[repeated]
        same_place = self.position[repeated] == self.position[before]
        same_parent = (self.position[repeated] == 0) | (self.keys[repeated - 1] == self.keys[before - 1])
        wrong = np.flatnonzero(~(same_place & same_parent))
        if len(wrong):
            at = int(repeated[wrong[0]])
            raise KvsimError(
                f"key {self.keys[at]} of request {self.request[at]}, block {self.position[at]}, came before at another "
                "place or after another block: keys must be chained, each standing for the whole prefix up to its block"
            )


def accesses_from_keys(
    requests: Iterable[Sequence[int]],
    block_size: int = 1,
    last_tokens: Sequence[int] | None = None,
    origins: Sequence[Origin] = (),
) -> Accesses:
    """Accesses from each request's chained ids; `last_tokens` is the length of each request's last block.

    Raises:
        KvsimError: the ids are not chained.

    >>> len(accesses_from_keys([[0, 1], [0, 1, 2]]))
    5
    """
    rows = [list(row) for row in requests]
    ids = np.array([key for row in rows for key in row], dtype=np.int64)
    full = [block_size] * len(rows)
    accesses = _assemble(ids, [len(row) for row in rows], block_size, last_tokens or full, origins)
    accesses.check()
    return accesses


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
    ids = keys.fingerprints()
    accesses = _assemble(ids, keys.counts, block_size, keys.last_tokens, origins)
    return accesses, keys.counts.count(0)


def _assemble(
    ids: npt.NDArray[np.int64] | npt.NDArray[np.uint64],
    counts: Sequence[int],
    block_size: int,
    last_tokens: Sequence[int],
    origins: Sequence[Origin],
) -> Accesses:
    """Number the ids and find each one's access before, with a single sort."""
    if len(ids) > MOST_ACCESSES:
        raise KvsimError(f"{len(ids):,} block accesses are more than {MOST_ACCESSES:,}; use larger blocks or --limit")
    starts = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    # a sort that leaves equal ids in any order, then one of (number of the id, index), are faster than one stable sort
    order = np.argsort(ids)
    ordered = ids[order]
    differs = ordered[1:] != ordered[:-1]
    del ordered
    places = np.zeros(len(ids), dtype=np.int64)
    np.cumsum(differs, out=places[1:])
    places <<= 32
    places |= order
    places.sort()
    order = (places & 0xFFFFFFFF).astype(np.int32)
    places >>= 32
    keys = np.empty(len(ids), dtype=np.int32)
    keys[order] = places
    same = places[1:] == places[:-1]
    previous = np.full(len(ids), -1, dtype=np.int32)
    previous[order[1:][same]] = order[:-1][same]
    return Accesses(keys, previous, starts, np.asarray(last_tokens, dtype=np.int64), block_size, tuple(origins))
