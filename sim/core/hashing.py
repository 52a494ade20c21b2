"""Hashes of blocks: a chain in which one hash identifies a whole prefix."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Protocol, overload

import cbor2

from sim.core.block import BlockHash
from sim.core.events import ExtraKeys
from sim.errors import ConfigError

DEFAULT_SEED = "vllm-none-hash"


class HashFunction:
    """A named hash over Python values, with the hash that stands for "no parent".

    Call it with ``(parent_hash, token_ids, extra_keys)``; it returns bytes.  `none_hash` is its value
    of the seed: `pythonhashseed` if given; else a fixed text for the SHA algorithms and random hex for
    the others, so that engines which must agree on hashes need a common seed.
    """

    def __init__(self, name: str, function: Callable[[object], bytes], pythonhashseed: str | None) -> None:
        self.name = name
        self._function = function
        if pythonhashseed is not None:
            seed = pythonhashseed
        elif name.startswith("sha256"):
            seed = DEFAULT_SEED
        else:
            seed = os.urandom(32).hex()
        self.none_hash = self(seed)

    def __call__(self, value: object) -> BlockHash:
        """The hash of a value."""
        return BlockHash(self._function(value))


def _pickled(value: object) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def _canonical_cbor(value: object) -> bytes:
    return cbor2.dumps(value, canonical=True)


def _sha256(encode: Callable[[object], bytes]) -> Callable[[object], bytes]:
    return lambda value: hashlib.sha256(encode(value)).digest()


def _xxh3_128(encode: Callable[[object], bytes]) -> Callable[[object], bytes]:
    try:
        import xxhash
    except ImportError:
        raise ConfigError(
            "prefix_caching_hash_algo: the xxhash algorithms need the package xxhash (pip install 'kvsim[xxhash]')"
        ) from None
    return lambda value: bytes(xxhash.xxh3_128_digest(encode(value)))


def _builtin(value: object) -> bytes:
    # The value comes last, where events look for it; what was hashed stays beside it, so two contents
    # with the same value stay two keys.  A parent counts by its value alone, else keys would nest.
    if isinstance(value, tuple):
        parent, tokens, extra = value
        number = hash((parent[-8:], tokens, extra))
        kept = repr((tokens, extra)).encode()
    else:
        number, kept = hash(value), b""
    return kept + (number & (1 << 64) - 1).to_bytes(8, "big")


HASH_ALGORITHMS = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor", "builtin")


def get_hash_function(name: str, pythonhashseed: str | None = None) -> HashFunction:
    """The hash function of a `prefix_caching_hash_algo`.

    Args:
        name: one of `HASH_ALGORITHMS`.
        pythonhashseed: the value of the environment's PYTHONHASHSEED that the engine would see, or None.

    Raises:
        ConfigError: an unknown name, or xxhash is not installed.
    """
    functions: dict[str, Callable[[], Callable[[object], bytes]]] = {
        "sha256": lambda: _sha256(_pickled),
        "sha256_cbor": lambda: _sha256(_canonical_cbor),
        "xxhash": lambda: _xxh3_128(_pickled),
        "xxhash_cbor": lambda: _xxh3_128(_canonical_cbor),
        "builtin": lambda: _builtin,
    }
    if name not in functions:
        raise ConfigError(f"prefix_caching_hash_algo: {name!r} is none of {', '.join(functions)}")
    return HashFunction(name, functions[name](), pythonhashseed)


class PlaceholderRange(Protocol):
    """Where an item's embeddings stand in the prompt: ``[offset, offset + length)``, in tokens."""

    @property
    def offset(self) -> int:
        """First position."""
        ...

    @property
    def length(self) -> int:
        """Number of positions."""
        ...


class LoRARequest(Protocol):
    """The adapter of a request."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def id(self) -> int:
        """Its number, > 0."""
        ...

    @property
    def path(self) -> str:
        """Where its weights are."""
        ...


class Hashable(Protocol):
    """What hashing reads of a request."""

    request_id: str
    lora_request: LoRARequest | None
    cache_salt: str | None
    mm_hashes: Sequence[str]
    mm_positions: Sequence[PlaceholderRange]

    @property
    def num_tokens(self) -> int:
        """Known tokens: the prompt and what was answered so far."""
        ...

    def token_ids(self, start: int, stop: int) -> tuple[int, ...]:
        """Ids of the tokens ``start … stop - 1``."""
        ...


def need_extra_keys(request: Hashable) -> bool:
    """Whether any block of the request can have extra keys."""
    return bool(request.mm_hashes or request.mm_positions or request.lora_request or request.cache_salt)


def check_mm_items(request: Hashable) -> None:
    """Raise `ValueError` unless items and hashes correspond one to one and are sorted by offset."""
    positions = request.mm_positions
    if len(positions) != len(request.mm_hashes) or any(not identifier for identifier in request.mm_hashes):
        raise ValueError(
            f"request {request.request_id}: {len(positions)} multimodal items need as many hashes, "
            f"got {sum(1 for identifier in request.mm_hashes if identifier)}"
        )
    if any(a.offset > b.offset for a, b in pairwise(positions)):
        raise ValueError(f"request {request.request_id}: multimodal items must be sorted by offset")


def generate_block_hash_extra_keys(request: Hashable, start: int, end: int, start_mm_idx: int) -> tuple[ExtraKeys, int]:
    """What must be hashed of block ``[start, end)`` besides its tokens.

    Args:
        request: the request.
        start, end: token positions of the block.
        start_mm_idx: the first multimodal item that may overlap it; negative counts from the end.

    Returns:
        The keys in order (LoRA, items, salt) or None, and the item to go on from with the next block,
        which keeps hashing linear in the request's length.

    Raises:
        ValueError: items and hashes do not correspond, or are not sorted.
    """
    keys: list[tuple[object, ...]] = []
    if request.lora_request is not None:
        keys.append(("lora", request.lora_request.name, request.lora_request.path))
    index = start_mm_idx
    positions = request.mm_positions
    if positions or request.mm_hashes:
        check_mm_items(request)
        if index < 0:
            index = max(index + len(positions), 0)
        while index < len(positions):
            item = positions[index]
            item_end = item.offset + item.length
            if item.offset >= end:
                break
            if item_end > start:
                keys.append(("mm", request.mm_hashes[index], item.offset - start))
            if item_end > end:
                break
            index += 1
    if start == 0 and request.cache_salt:
        keys.append(("cache_salt", request.cache_salt))
    return (tuple(keys) or None), index


def hash_blocks(
    hash_function: HashFunction, block_size: int, request: Hashable, known: Sequence[BlockHash]
) -> list[BlockHash]:
    """Hashes of the full blocks behind those that are known already."""
    hashes: list[BlockHash] = []
    parent = known[-1] if known else hash_function.none_hash
    with_extra = need_extra_keys(request)
    # Long after the prompt no item can overlap: go on from the last one.
    mm_idx = -1 if known and request.mm_positions and _behind_items(request, len(known) * block_size) else 0
    for start in range(len(known) * block_size, request.num_tokens - block_size + 1, block_size):
        end = start + block_size
        extra: ExtraKeys = None
        if with_extra:
            extra, mm_idx = generate_block_hash_extra_keys(request, start, end, mm_idx)
        parent = hash_function((parent, request.token_ids(start, end), extra))
        hashes.append(parent)
    return hashes


def _behind_items(request: Hashable, position: int) -> bool:
    last = request.mm_positions[-1]
    return last.offset + last.length <= position


def hash_request_tokens(hash_function: HashFunction, block_size: int, request: Hashable) -> list[BlockHash]:
    """Hashes of all full blocks of the request's known tokens."""
    return hash_blocks(hash_function, block_size, request, ())


class BlockHashListWithBlockSize(Sequence[BlockHash]):
    """A view of hashes at a coarser block size; nothing is computed or copied.

    Hash i of the view is the fine hash that ends coarse block i.  Raises `ValueError` when
    `target_block_size` is no multiple of `hash_block_size`.
    """

    def __init__(self, hashes: Sequence[BlockHash], hash_block_size: int, target_block_size: int) -> None:
        if target_block_size % hash_block_size:
            raise ValueError(f"block size {target_block_size} is no multiple of the hash block size {hash_block_size}")
        self._hashes = hashes
        self._scale = target_block_size // hash_block_size

    def __len__(self) -> int:
        return len(self._hashes) // self._scale

    @overload
    def __getitem__(self, index: int) -> BlockHash: ...
    @overload
    def __getitem__(self, index: slice) -> list[BlockHash]: ...
    def __getitem__(self, index: int | slice) -> BlockHash | list[BlockHash]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not isinstance(index, int):
            raise TypeError(f"an index is an int or a slice, not {type(index).__name__}")
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"hash {index} of {len(self)}")
        return self._hashes[(index + 1) * self._scale - 1]

    def __iter__(self) -> Iterator[BlockHash]:
        return (self[i] for i in range(len(self)))
