"""Block fingerprints of many prompts at once.

Most prompts of traces are slices of streams cut at block boundaries.  Those are fingerprinted in one
go over all requests, which is an order of magnitude faster than one by one; the numbers are those of
`workloads.fingerprint.prefix_fingerprints`, which does the rest.
"""

from __future__ import annotations

from itertools import chain

import numpy as np
import numpy.typing as npt

from sim.errors import KvsimError
from workloads.fingerprint import U64Array, mix64_array, prefix_fingerprints
from workloads.spec import RequestSpec, Segment, TokenIds, mix64, stream_id

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_PADDING = stream_id("end of a partial block")
_AT_ONCE = 4096  # prompts

IntArray = npt.NDArray[np.int64]


class PromptKeys:
    """Collects prompts and fingerprints their blocks of `block_size` tokens.

    The partial last block counts as a block, equal to another that ends in just the same way, unless
    `full_blocks_only`: it is made full with the start of a stream that nothing else uses.
    """

    def __init__(self, block_size: int, *, full_blocks_only: bool = False) -> None:
        if block_size < 1:
            raise KvsimError(f"block size {block_size}: a block holds at least 1 token")
        self.block_size = block_size
        self.full_blocks_only = full_blocks_only
        self._waiting: list[RequestSpec] = []
        self._counts: list[int] = []
        self._last_tokens: list[int] = []
        self._single: list[U64Array] = []
        self._is_single: list[bool] = []
        # slices of whole blocks: value of the first block, number of blocks; then tails: at which block of all, length
        self._first: list[U64Array] = []
        self._blocks: list[IntArray] = []
        self._tails: list[IntArray] = []
        self._tail_tokens: list[IntArray] = []
        self._total = 0

    @property
    def counts(self) -> list[int]:
        """Blocks of each prompt so far."""
        self._take()
        return self._counts

    @property
    def last_tokens(self) -> list[int]:
        """Tokens in the last block of each prompt so far; of a prompt that ends with a full block, those of a block."""
        self._take()
        return self._last_tokens

    def add(self, spec: RequestSpec) -> None:
        """Take the next prompt."""
        self._waiting.append(spec)
        if len(self._waiting) >= _AT_ONCE:
            self._take()

    def fingerprints(self) -> U64Array:
        """Fingerprints of all blocks of all prompts, in order."""
        self._take()
        if not self._single:
            return self._many()
        single = np.repeat(np.asarray(self._is_single, dtype=np.bool_), self._counts)
        result = np.empty(len(single), dtype=np.uint64)
        result[~single] = self._many()
        result[single] = np.concatenate(self._single)
        return result

    def _take(self) -> None:
        """Sort the prompts that wait into those that are done together and those that are done singly."""
        specs, self._waiting = self._waiting, []
        if not specs:
            return
        size = self.block_size
        single = np.fromiter((bool(s.lora or s.mm_items or s.cache_salt) for s in specs), dtype=np.bool_)
        if TokenIds in set(map(type, chain.from_iterable(spec.prompt for spec in specs))):
            single |= np.fromiter((any(isinstance(p, TokenIds) for p in spec.prompt) for spec in specs), dtype=np.bool_)
        prompts = [() if alone else spec.prompt for spec, alone in zip(specs, single.tolist(), strict=True)]
        pieces = np.fromiter(map(len, prompts), dtype=np.int64)
        try:
            numbers = np.fromiter(chain.from_iterable(chain.from_iterable(prompts)), dtype=np.int64).reshape(-1, 3)
        except OverflowError:  # a stream's number may be any integer
            single[:] = True
            pieces[:] = 0
            numbers = np.empty((0, 3), dtype=np.int64)
        stream, start, length = numbers.T
        prompt = np.repeat(np.arange(len(specs)), pieces)
        ends = np.append(0, np.cumsum(length))[np.append(0, np.cumsum(pieces))]
        offset = np.cumsum(length) - length - ends[prompt]
        single[prompt[offset % size != 0]] = True
        tokens = np.diff(ends)
        for index in np.flatnonzero(single).tolist():
            tokens[index] = specs[index].prompt_tokens
        rest = np.zeros_like(tokens) if self.full_blocks_only else tokens % size
        counts = tokens // size + (rest > 0)
        self._counts += counts.tolist()
        self._last_tokens += np.where(rest > 0, rest, size).tolist()
        self._is_single += single.tolist()
        for index in np.flatnonzero(single).tolist():
            self._single.append(self._alone(specs[index], int(rest[index])))
        plain = ~single[prompt]
        stream, start, length = stream[plain], start[plain], length[plain]
        self._first.append(mix64_array(stream.astype(np.uint64)) + start.astype(np.uint64) * np.uint64(_GOLDEN))
        self._blocks.append(length // size if self.full_blocks_only else -(-length // size))
        last_block = self._total + np.cumsum(counts[~single]) - 1
        self._total += int(counts[~single].sum())
        with_tail = rest[~single] > 0
        self._tails.append(last_block[with_tail])
        self._tail_tokens.append(rest[~single][with_tail])

    def _alone(self, spec: RequestSpec, rest: int) -> U64Array:
        """Fingerprints of one prompt with `rest` tokens in a partial last block that counts."""
        pieces = spec.prompt
        if rest:
            pieces = (*pieces, Segment(_PADDING, 0, self.block_size - rest))
        return prefix_fingerprints(
            pieces, self.block_size, lora=spec.lora, mm_items=spec.mm_items, cache_salt=spec.cache_salt
        )

    def _many(self) -> U64Array:
        """Fingerprints of all blocks of the prompts that are done together."""
        if not self._total:
            return np.empty(0, dtype=np.uint64)
        counts = np.asarray(self._counts, dtype=np.int64)[~np.asarray(self._is_single, dtype=np.bool_)]
        blocks = np.concatenate(self._blocks)
        content = _within(blocks)
        content *= np.uint64(self.block_size * _GOLDEN & _MASK)
        content += np.repeat(np.concatenate(self._first), blocks)
        tails = np.concatenate(self._tails)
        if len(tails):
            tokens = np.concatenate(self._tail_tokens).astype(np.uint64)
            padding = np.uint64(mix64(mix64(_PADDING & _MASK)))
            content[tails] = mix64_array(mix64_array(content[tails]) ^ tokens) + mix64_array(
                padding ^ (tokens << np.uint64(32) | (np.uint64(self.block_size) - tokens))
            )
        content += mix64_array(np.arange(int(counts.max()), dtype=np.uint64))[_within(counts)]
        sums = np.cumsum(mix64_array(content), dtype=np.uint64)
        before = np.zeros(len(counts), dtype=np.uint64)
        ends = np.cumsum(counts)
        begun = ends[:-1] > 0
        before[1:][begun] = sums[ends[:-1][begun] - 1]
        sums -= np.repeat(before, counts)
        return sums


def _within(counts: IntArray) -> U64Array:
    """0, 1, … counts[0] - 1, 0, 1, … counts[1] - 1, …"""
    ends = np.cumsum(counts)
    places = np.arange(int(ends[-1]))
    places -= np.repeat(ends - counts, counts)
    return places.view(np.uint64)
