"""A request as the scheduler knows it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

from sim.core.block import BlockHash
from sim.core.hashing import LoRARequest, PlaceholderRange


class RequestStatus(enum.Enum):
    """Where a request stands; everything from FINISHED_STOPPED on is an end."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED_STOPPED = "stop"
    FINISHED_LENGTH_CAPPED = "length"
    FINISHED_ABORTED = "abort"

    @property
    def is_finished(self) -> bool:
        """Whether the request has ended."""
        return self in (self.FINISHED_STOPPED, self.FINISHED_LENGTH_CAPPED, self.FINISHED_ABORTED)


TokenReader = Callable[[int, int], tuple[int, ...]]
BlockHasher = Callable[["Request"], list[BlockHash]]


def no_tokens(start: int, stop: int) -> tuple[int, ...]:
    """A `TokenReader` for runs that make no token."""
    return ()


class Request:
    """One request: what it asks, and how far it has come.  All counts are tokens.

    ::

        |------------- num_tokens (known) -------------| num_output_placeholders |
        |-- num_prompt_tokens --|-- num_output_tokens --|
        |-- num_computed_tokens --> …

    Args:
        request_id: unique among the living.
        num_prompt_tokens: length of the prompt.
        max_tokens: at most so many answers.
        arrival_time: orders requests of equal priority.
        priority: smaller goes first.
        token_reader: gives the ids of tokens ``start … stop - 1``.
        block_hasher: gives the hashes of blocks that have become full and are not in `block_hashes`.
        lora_request, cache_salt: what block keys must tell apart.
        mm_hashes, mm_positions: multimodal items, one hash a position, sorted by offset.
        index: a number for recorders, unique in a run.
    """

    def __init__(
        self,
        request_id: str,
        num_prompt_tokens: int,
        max_tokens: int,
        arrival_time: float = 0.0,
        *,
        priority: int = 0,
        token_reader: TokenReader = no_tokens,
        block_hasher: BlockHasher | None = None,
        lora_request: LoRARequest | None = None,
        cache_salt: str | None = None,
        mm_hashes: Sequence[str] = (),
        mm_positions: Sequence[PlaceholderRange] = (),
        index: int = -1,
    ) -> None:
        self.request_id = request_id
        self.index = index
        self.num_prompt_tokens = num_prompt_tokens
        self.max_tokens = max_tokens
        self.arrival_time = arrival_time
        self.priority = priority
        self.lora_request = lora_request
        self.cache_salt = cache_salt
        self.mm_hashes = mm_hashes
        self.mm_positions = mm_positions
        self.status = RequestStatus.WAITING
        self.num_output_tokens = 0
        self.num_computed_tokens = 0
        self.num_preemptions = 0
        # asynchronous scheduling: tokens that will come, tokens in flight, and those in flight of an
        # earlier life, before a preemption
        self.num_output_placeholders = 0
        self.num_inflight_tokens = 0
        self.num_stale_tokens = 0
        # figures for recorders
        self.num_cached_tokens = -1
        self.num_phantom_hit_tokens = 0
        self.token_ids = token_reader
        self._block_hasher = block_hasher
        self.block_hashes: list[BlockHash] = []
        self._hash_new_blocks()

    @property
    def num_tokens(self) -> int:
        """Known tokens: prompt and answer so far."""
        return self.num_prompt_tokens + self.num_output_tokens

    @property
    def is_prefill_chunk(self) -> bool:
        """Whether known or promised tokens are still to be computed."""
        return self.num_computed_tokens < self.num_tokens + self.num_output_placeholders

    def append_output_token(self) -> None:
        """One more answered token is known."""
        self.num_output_tokens += 1
        self._hash_new_blocks()

    def _hash_new_blocks(self) -> None:
        if self._block_hasher is not None:
            self.block_hashes += self._block_hasher(self)

    def __repr__(self) -> str:
        return (
            f"Request({self.request_id}, {self.status.value}, {self.num_computed_tokens} of {self.num_tokens} computed)"
        )
