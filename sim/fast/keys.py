"""Keys of blocks as dense integers, so that a request's keys are a few ranges.

A content fingerprint (or a real hash) of a block identifies the whole prefix that ends there.  The
first request with some content gets a range of new keys, one per full block; a later request
shares the ranges as far as its fingerprints agree and gets a new range from where it leaves them.
Finding that point costs one comparison per range, and a search inside the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from workloads.compiled import load

if TYPE_CHECKING:
    from sim.fast.request import FastRequest

U64Array = npt.NDArray[np.uint64]
I32Array = npt.NDArray[np.int32]
I64Array = npt.NDArray[np.int64]
_Array = TypeVar("_Array", U64Array, I32Array)
_KERNEL = load("sim.fast._kernel")


class Span(NamedTuple):
    """Blocks ``first … first + length - 1`` of a request have the keys ``base … base + length - 1``."""

    first: int
    base: int
    length: int


class _Run:
    """A range of keys, made by the request `owner` (None once that one has ended)."""

    __slots__ = ("base", "length", "owner")

    def __init__(self, base: int, length: int, owner: FastRequest | None) -> None:
        self.base = base
        self.length = length
        self.owner = owner


class KeyTable:
    """All keys seen, and for each the block that was first given it among those still cached.

    Attributes:
        size: the next new key; the first one is 1.
        fingerprints: uint64, of each key.
        depth: int32, position of the key's block in its chain (0 = first block of a prompt).
        first_block: int32, the block that a lookup finds; 0, the null block, for none.
        others: further blocks with the same key in the order in which they got it (rare).
        eager: number of living requests that are `eager`.
    """

    def __init__(self, capacity: int = 1 << 24) -> None:
        self.size = 1
        # memory that is asked for and never touched costs nothing, so there is room to grow; `empty` gets large
        # pages where `zeros` does not
        self.fingerprints: U64Array = np.empty(capacity, dtype=np.uint64)
        self.depth: I32Array = np.empty(capacity, dtype=np.int32)
        self.first_block: I32Array = np.empty(capacity, dtype=np.int32)
        self.first_block[0] = 0
        self.others: dict[int, list[int]] = {}
        self.eager = 0
        self._runs: dict[int, _Run] = {}
        self._grown: Callable[[], None] | None = None

    def on_growth(self, tell: Callable[[], None]) -> None:
        """Call `tell` now and whenever the arrays have been replaced by larger ones."""
        self._grown = tell
        tell()

    def intern(self, fingerprints: U64Array, request: FastRequest) -> list[Span]:
        """Keys of a request's full blocks, prompt and answer, as ranges in order.

        Marks as `eager` the requests whose answers another one quotes while they are running: the
        scheduler then may not put off giving keys to the blocks of their answers.
        """
        fingerprints = np.ascontiguousarray(fingerprints)
        spans: list[Span] = []
        at, blocks = 0, len(fingerprints)
        runs, known = self._runs, self.fingerprints
        common = _KERNEL.common if _KERNEL is not None else _common
        while at < blocks:
            head = int(fingerprints[at])
            run = runs.get(head)
            if run is None:
                run = _Run(self._add(fingerprints, at), blocks - at, request)
                runs[head] = run
                request.run = run
                spans.append(Span(at, run.base, run.length))
                break
            base = run.base
            length = common(known, base, fingerprints, at, min(run.length, blocks - at))
            spans.append(Span(at, base, length))
            at += length
            if run.owner is not None and at > run.owner.prompt_blocks:
                self.mark(run.owner)
            if at > request.prompt_blocks:
                self.mark(request)
        return spans

    def find(self, fingerprints: U64Array) -> I64Array:
        """Keys of the longest prefix of these fingerprints that is known; nothing is added."""
        fingerprints = np.ascontiguousarray(fingerprints)
        parts: list[I64Array] = []
        at, blocks = 0, len(fingerprints)
        common = _KERNEL.common if _KERNEL is not None else _common
        while at < blocks:
            run = self._runs.get(int(fingerprints[at]))
            if run is None:
                break
            length = common(self.fingerprints, run.base, fingerprints, at, min(run.length, blocks - at))
            parts.append(np.arange(run.base, run.base + length))
            at += length
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def mark(self, request: FastRequest) -> None:
        """The blocks of this request's answer are given their keys at once, not when somebody may look."""
        if not request.eager:
            request.eager = True
            self.eager += 1

    def forget(self, request: FastRequest) -> None:
        """A request has ended; its keys stay."""
        if request.run is not None:
            request.run.owner = None
        if request.eager:
            self.eager -= 1

    def _add(self, fingerprints: U64Array, at: int) -> int:
        """Make new keys of the fingerprints from `at` on, their depth; the first one is returned."""
        base = self.size
        end = base + len(fingerprints) - at
        if end > len(self.depth):
            self._grow(end)
        if _KERNEL is not None:
            _KERNEL.add_keys(fingerprints, at, self.fingerprints, self.depth, self.first_block, base)
        else:
            self.fingerprints[base:end] = fingerprints[at:]
            self.depth[base:end] = np.arange(at, len(fingerprints), dtype=np.int32)
            self.first_block[base:end] = 0
        self.size = end
        return base

    def _grow(self, needed: int) -> None:
        capacity = max(needed, 4 * len(self.depth))
        self.fingerprints = _larger(self.fingerprints, self.size, np.empty(capacity, dtype=np.uint64))
        self.depth = _larger(self.depth, self.size, np.empty(capacity, dtype=np.int32))
        self.first_block = _larger(self.first_block, self.size, np.empty(capacity, dtype=np.int32))
        if self._grown is not None:
            self._grown()

    def insert(self, base: int, blocks: I64Array) -> None:
        """Give the keys from `base` on to `blocks`, one each."""
        found = self.first_block[base : base + len(blocks)]
        if not np.count_nonzero(found):
            found[:] = blocks
            return
        for offset, block in enumerate(blocks.tolist()):
            if not found[offset]:
                found[offset] = block
            else:
                self.others.setdefault(base + offset, []).append(block)

    def remove(self, keys: I64Array, blocks: I64Array) -> None:
        """Take each key from its block; a further block with the same key becomes the one that is found."""
        if not self.others or self.others.keys().isdisjoint(keys.tolist()):
            self.first_block[keys] = 0
            return
        for key, block in zip(keys.tolist(), blocks.tolist(), strict=True):
            others = self.others.get(key)
            if others is None:
                self.first_block[key] = 0
                continue
            if self.first_block[key] == block:
                self.first_block[key] = others.pop(0)
            else:
                others.remove(block)
            if not others:
                del self.others[key]


def keys_of(spans: Sequence[Span], start: int, stop: int) -> I64Array:
    """Keys of blocks ``start … stop - 1``, as far as the spans go."""
    parts = []
    for first, base, length in spans:
        low, high = max(start, first), min(stop, first + length)
        if low < high:
            parts.append(np.arange(base + low - first, base + high - first))
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _common(known: U64Array, base: int, fingerprints: U64Array, at: int, most: int) -> int:
    """How many of `most` fingerprints from `at` on are those that are known from `base` on."""
    if known[base + most - 1] == fingerprints[at + most - 1]:
        return most
    return int((known[base : base + most] != fingerprints[at : at + most]).argmax())


def _larger(old: _Array, size: int, new: _Array) -> _Array:
    new[:size] = old[:size]
    return new
