"""Block fingerprints of many prompts at once.

Most prompts of traces are slices of streams cut at block boundaries.  Those are fingerprinted in one
go over all requests, which is an order of magnitude faster than one by one; the numbers are those of
`workloads.fingerprint.prefix_fingerprints`, which does the rest.
"""

from __future__ import annotations

import numpy as np

from sim.errors import KvsimError
from workloads.fingerprint import U64Array, mix64_array, prefix_fingerprints
from workloads.spec import RequestSpec, Segment, TokenIds, mix64, stream_id

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_PADDING = stream_id("end of a partial block")


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
        self.counts: list[int] = []
        """Blocks of each prompt so far."""
        self.last_tokens: list[int] = []
        """Tokens in the last block of each prompt."""
        self._single: list[U64Array] = []
        self._is_single: list[bool] = []
        # slices of whole blocks: value of the first block, number of blocks; then tails: at which block of all, length
        self._first: list[int] = []
        self._blocks: list[int] = []
        self._tails: list[int] = []
        self._tail_tokens: list[int] = []
        self._total = 0
        self._bases: dict[int, int] = {}

    def add(self, spec: RequestSpec) -> None:
        """Take the next prompt."""
        size = self.block_size
        pieces = spec.prompt
        tokens = 0
        plain = not (spec.lora or spec.mm_items or spec.cache_salt)
        for piece in pieces:
            plain = plain and tokens % size == 0 and not isinstance(piece, TokenIds)
            tokens += piece.length
        count, rest = divmod(tokens, size)
        if self.full_blocks_only:
            rest = 0
        count += rest > 0
        self.counts.append(count)
        self.last_tokens.append(rest or size)
        self._is_single.append(not plain)
        if not plain:
            if rest:
                pieces = (*pieces, Segment(_PADDING, 0, size - rest))
            row = prefix_fingerprints(pieces, size, lora=spec.lora, mm_items=spec.mm_items, cache_salt=spec.cache_salt)
            self._single.append(row)
            return
        left = count
        for stream, start, length in pieces:  # type: ignore[misc]  # all are segments
            base = self._bases.get(stream)
            if base is None:
                base = self._bases[stream] = mix64(stream & _MASK)
            blocks = min(-(-length // size), left)
            left -= blocks
            self._first.append((base + start * _GOLDEN) & _MASK)
            self._blocks.append(blocks)
        self._total += count
        if rest:
            self._tails.append(self._total - 1)
            self._tail_tokens.append(rest)

    def fingerprints(self) -> U64Array:
        """Fingerprints of all blocks of all prompts, in order."""
        single = np.repeat(np.asarray(self._is_single, dtype=np.bool_), self.counts)
        result = np.empty(len(single), dtype=np.uint64)
        result[~single] = self._many()
        if self._single:
            result[single] = np.concatenate(self._single)
        return result

    def _many(self) -> U64Array:
        counts = np.asarray(self.counts, dtype=np.int64)[~np.asarray(self._is_single, dtype=np.bool_)]
        blocks = np.asarray(self._blocks, dtype=np.int64)
        content = np.repeat(np.asarray(self._first, dtype=np.uint64), blocks)
        content += _within(blocks) * np.uint64(self.block_size * _GOLDEN & _MASK)
        if self._tails:
            tails = np.asarray(self._tails, dtype=np.int64)
            tokens = np.asarray(self._tail_tokens, dtype=np.uint64)
            padding = np.uint64(mix64(mix64(_PADDING & _MASK)))
            content[tails] = mix64_array(mix64_array(content[tails]) ^ tokens) + mix64_array(
                padding ^ (tokens << np.uint64(32) | (np.uint64(self.block_size) - tokens))
            )
        places = _within(counts)
        if not len(places):
            return content
        terms = mix64_array(np.arange(int(places.max()) + 1, dtype=np.uint64))
        sums = np.cumsum(mix64_array(content + terms[places]), dtype=np.uint64)
        before = np.zeros(len(counts), dtype=np.uint64)
        ends = np.cumsum(counts)
        begun = ends[:-1] > 0
        before[1:][begun] = sums[ends[:-1][begun] - 1]
        return sums - np.repeat(before, counts)


def _within(counts: np.typing.NDArray[np.int64]) -> U64Array:
    """0, 1, … counts[0] - 1, 0, 1, … counts[1] - 1, …"""
    starts = np.cumsum(counts) - counts
    return (np.arange(int(counts.sum())) - np.repeat(starts, counts)).astype(np.uint64)
