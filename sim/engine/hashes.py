"""Block hashes of a run: content fingerprints in the place of real hashes, made when they are first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from sim.core.block import BlockHash
from sim.core.request import Request
from workloads.fingerprint import Fingerprints, sequence_fingerprints
from workloads.spec import RequestSpec

_BYTES = 8


class FingerprintHashes(Sequence[BlockHash]):
    """The hashes of a request's full blocks, as many as its known tokens fill.

    Each is the 8 bytes (big-endian) of the prefix's fingerprint.  Those of the answer are made with
    those of the prompt, and become visible as the answer grows.
    """

    def __init__(
        self,
        request: Request,
        spec: RequestSpec,
        block_size: int,
        fingerprints: Fingerprints = sequence_fingerprints,
    ) -> None:
        self._request = request
        self._spec = spec
        self._block_size = block_size
        self._fingerprints = fingerprints
        self._data = b""

    def __len__(self) -> int:
        return self._request.num_tokens // self._block_size

    @overload
    def __getitem__(self, index: int) -> BlockHash: ...
    @overload
    def __getitem__(self, index: slice) -> list[BlockHash]: ...
    def __getitem__(self, index: int | slice) -> BlockHash | list[BlockHash]:
        if not self._data:
            self._make()
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        size = self._request.num_tokens // self._block_size
        at = index + size if index < 0 else index
        if not 0 <= at < size:
            raise IndexError(f"hash {index} of {size}")
        return BlockHash(self._data[at * _BYTES : (at + 1) * _BYTES])

    def __iter__(self) -> Iterator[BlockHash]:
        return (self[i] for i in range(len(self)))

    def _make(self) -> None:
        self._data = self._fingerprints(self._spec, self._block_size).astype(">u8").tobytes()
