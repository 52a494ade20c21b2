"""Requests of a workload as the scheduler knows them, and the hashes of their blocks.

Two kinds of hashes: `ContentHashes` stand for content without making a token (eight bytes each, from
`workloads.fingerprint`); `RealHashes` are the engine's own, over the tokens.  Decisions are the same
under both: a block key only tells contents apart.
"""

from __future__ import annotations

from typing import Protocol

from sim.core.block import BlockHash
from sim.core.hashing import HashFunction, generate_block_hash_extra_keys, need_extra_keys
from sim.core.request import BlockHasher, Request, TokenReader, no_tokens
from workloads.fingerprint import sequence_fingerprints
from workloads.spec import Piece, RequestSpec, Segment, merge_pieces, prompt_tokens


class SpecHashes(Protocol):
    """Makes the hashes of a workload's requests at one block size."""

    def for_spec(self, spec: RequestSpec) -> tuple[BlockHasher, TokenReader]:
        """The block hasher of a request, and the reader of its token ids (empty where none are made)."""
        ...


def whole_sequence(spec: RequestSpec) -> tuple[Piece, ...]:
    """The prompt followed by what the model will answer."""
    return merge_pieces([*spec.prompt, Segment(spec.answer_stream, 0, spec.output_tokens)])


class ContentHashes:
    """Hashes that are content fingerprints; `block_size` in tokens."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size

    def for_spec(self, spec: RequestSpec) -> tuple[BlockHasher, TokenReader]:
        """Fingerprints of the whole sequence, handed out as its blocks fill."""
        data = sequence_fingerprints(spec, self.block_size).astype(">u8").tobytes()

        def hasher(request: Request) -> list[BlockHash]:
            known, full = len(request.block_hashes), request.num_tokens // self.block_size
            return [BlockHash(data[8 * i : 8 * i + 8]) for i in range(known, full)]

        return hasher, no_tokens


class RealHashes:
    """Hashes by the engine's hash function over real token ids.

    A prefix that several requests share is hashed once: hashes are remembered by content fingerprint.
    """

    def __init__(self, function: HashFunction, block_size: int) -> None:
        self.function = function
        self.block_size = block_size
        self._content = ContentHashes(block_size)
        self._known: dict[BlockHash, BlockHash] = {}

    def for_spec(self, spec: RequestSpec) -> tuple[BlockHasher, TokenReader]:
        """Real hashes, made as blocks fill."""
        content, _ = self._content.for_spec(spec)
        pieces = whole_sequence(spec)
        read = _token_reader(pieces)

        def hasher(request: Request) -> list[BlockHash]:
            out: list[BlockHash] = []
            parent = request.block_hashes[-1] if request.block_hashes else self.function.none_hash
            start = len(request.block_hashes) * self.block_size
            mm_idx = 0
            for fingerprint in content(request):
                stop = start + self.block_size
                found = self._known.get(fingerprint)
                if found is None:
                    extra = None
                    if need_extra_keys(request):
                        extra, mm_idx = generate_block_hash_extra_keys(request, start, stop, mm_idx)
                    found = self.function((parent, read(start, stop), extra))
                    self._known[fingerprint] = found
                parent = found
                out.append(found)
                start = stop
            return out

        return hasher, read


def _token_reader(pieces: tuple[Piece, ...]) -> TokenReader:
    tokens: list[int] | None = None

    def read(start: int, stop: int) -> tuple[int, ...]:
        nonlocal tokens
        if tokens is None:
            tokens = prompt_tokens(pieces).tolist()
        return tuple(tokens[start:stop])

    return read


def request_from_spec(spec: RequestSpec, hashes: SpecHashes | None, *, index: int, arrival_time: float) -> Request:
    """The request of a spec.

    Args:
        spec: what the workload says.
        hashes: makes block hashes; None where caching is off.
        index: its number in the run.
        arrival_time: seconds; orders requests of equal priority.
    """
    hasher, reader = hashes.for_spec(spec) if hashes is not None else (None, no_tokens)
    return Request(
        spec.request_id,
        spec.prompt_tokens,
        spec.output_tokens if spec.max_tokens is None else spec.max_tokens,
        arrival_time,
        priority=spec.priority,
        token_reader=reader,
        block_hasher=hasher,
        lora_request=spec.lora,
        cache_salt=spec.cache_salt,
        mm_hashes=[item.identifier for item in spec.mm_items],
        mm_positions=spec.mm_items,
        index=index,
    )
