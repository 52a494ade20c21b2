"""The same tokens under another key: which blocks would be equal if images, LoRA adapters or salts did not count.

A request with any of these has *variants* of its keys: fingerprints made without its images, without
its adapter, without its salt, and without all of them.  A block of one request could have served
another one "but for the image" when their variants without images are equal.  Requests without such
things cost nothing here until the first one with some has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import numpy.typing as npt

from sim.fast.keys import KeyTable, Span, keys_of
from sim.fast.request import FastRequest
from sim.recording.columns import grown
from workloads.fingerprint import sequence_fingerprints
from workloads.spec import RequestSpec

I64Array = npt.NDArray[np.int64]
I8Array = npt.NDArray[np.int8]
U64Array = npt.NDArray[np.uint64]

KINDS = ("image", "lora", "salt", "several")
"""What can differ; `several`: more than one of the others at once."""


class Owner:
    """A request as a `KeyTable` wants one."""

    __slots__ = ("eager", "prompt_blocks", "run")

    def __init__(self) -> None:
        self.prompt_blocks = 0
        self.eager = True  # nobody asks, and a request that is marked already is not counted
        self.run = None


def intern(table: KeyTable, fingerprints: U64Array, owner: Owner) -> list[Span]:
    """Keys of a request that is no `FastRequest`."""
    return table.intern(fingerprints, cast("FastRequest", owner))


class KeyVariants:
    """Counts, for every variant of a key, the cached blocks that have it.

    Args:
        keys: the table of real keys.
        hash_block_size: tokens of a hash.
        ratio: hashes of a block.
    """

    def __init__(self, keys: KeyTable, hash_block_size: int, ratio: int) -> None:
        self._keys = keys
        self._hash_block_size = hash_block_size
        self._ratio = ratio
        self.active = False
        self._variants = KeyTable(1 << 12)
        self._counts = {kind: np.zeros(1 << 12, dtype=np.int32) for kind in KINDS}
        self._variant_of = {kind: np.zeros(1 << 12, dtype=np.int32) for kind in KINDS}
        self._living: dict[int, dict[str, list[Span]]] = {}

    def arrived(self, index: int, spec: RequestSpec) -> None:
        """A request arrives."""
        without: dict[str, RequestSpec] = {}
        if spec.mm_items:
            without["image"] = replace(spec, mm_items=())
        if spec.lora is not None:
            without["lora"] = replace(spec, lora=None)
        if spec.cache_salt:
            without["salt"] = replace(spec, cache_salt=None)
        if not without:
            return
        self.active = True
        without["several"] = replace(spec, mm_items=(), lora=None, cache_salt=None)
        made = self._living[index] = {}
        for kind, bare in without.items():
            fingerprints = sequence_fingerprints(bare, self._hash_block_size)[self._ratio - 1 :: self._ratio]
            made[kind] = intern(self._variants, fingerprints, Owner())

    def ended(self, index: int) -> None:
        """A request ends."""
        self._living.pop(index, None)

    def stored(self, index: int, keys: I64Array, start: int) -> None:
        """Blocks from `start` on of a living request have these keys now; 0 = it has none."""
        for kind, spans in self._living.get(index, {}).items():
            variants = keys_of(spans, start, start + len(keys))[keys > 0]
            self._counts[kind] = counts = grown(self._counts[kind], self._variants.size)
            self._variant_of[kind] = variant_of = grown(self._variant_of[kind], self._keys.size)
            counts[variants] += 1
            variant_of[keys[keys > 0]] = variants

    def evicted(self, keys: I64Array) -> None:
        """These keys each left a block."""
        if not self.active:
            return
        for kind in KINDS:
            variant_of = self._variant_of[kind]
            variants = variant_of[keys[keys < len(variant_of)]]
            np.subtract.at(self._counts[kind], variants[variants > 0], 1)

    def differing(self, index: int, spans: Sequence[Span], start: int, stop: int) -> I8Array:
        """Of blocks ``start … stop - 1`` of a request, none of which is cached: what would have to be equal.

        Returns:
            1 + the place in `KINDS` of the first kind under which the block is cached, 0 for none.
        """
        found = np.zeros(stop - start, dtype=np.int8)
        own = self._living.get(index, {})
        fingerprints = self._keys.fingerprints[keys_of(spans, 0, stop)]
        plain: I64Array | None = None
        for code, kind in enumerate(KINDS, 1):
            if kind in own:
                variants = keys_of(own[kind], 0, stop)
                elsewhere = self._keys.find(self._variants.fingerprints[variants])
                cached = np.zeros(stop, dtype=bool)
                cached[: len(elsewhere)] = self._keys.first_block[elsewhere] > 0
            else:
                if plain is None:
                    plain = np.zeros(stop, dtype=np.int64)
                    known = self._variants.find(fingerprints)
                    plain[: len(known)] = known
                variants, cached = plain, np.zeros(stop, dtype=bool)
            counts = self._counts[kind] = grown(self._counts[kind], self._variants.size)
            cached |= counts[variants] > 0
            found[(found == 0) & cached[start:]] = code
        return found
