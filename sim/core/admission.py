"""Requests on which the engine would never come to an end, told before or as soon as it is certain.

The reference waits for such a request for ever, and often all that is behind it does too.  A simulator
must end it instead, as *rejected*, with the reason and the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from weakref import WeakKeyDictionary

from sim.core.hashing import PlaceholderRange
from sim.core.request import Request
from sim.core.scheduler import Scheduler
from sim.core.scheduler_config import SchedulerConfig
from sim.core.scheduler_output import SchedulerOutput


class Asked(Protocol):
    """What is looked at of a request that arrives; a `Request` has it, and so may less than one."""

    @property
    def num_prompt_tokens(self) -> int:
        """Length of the prompt."""

    @property
    def max_tokens(self) -> int:
        """The most tokens it may answer."""

    @property
    def mm_hashes(self) -> Sequence[str]:
        """Identifiers of its multimodal items."""

    @property
    def mm_positions(self) -> Sequence[PlaceholderRange]:
        """Where these stand in the prompt."""


class Admission:
    """Looks at every request that arrives, and at every step that was scheduled.

    Args:
        config: the settings of the scheduler whose requests these are.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self.config = config
        self._item_lengths: dict[str, int] = {}
        self._all_full = all(group.window is None for group in config.groups)
        self._states: WeakKeyDictionary[Request, set[tuple[int, ...]]] = WeakKeyDictionary()
        self._beginnings: WeakKeyDictionary[Request, set[tuple[int, int]]] = WeakKeyDictionary()

    def why_never(self, request: Asked) -> str | None:
        """Why the request can never end, or None; remembers the lengths of its multimodal items."""
        if request.num_prompt_tokens == 0:
            return "the prompt is empty"
        if request.max_tokens <= 0:
            return f"no output tokens are asked for (max_tokens {request.max_tokens})"
        return self._too_long(request) or self._too_large(request) or self._items_never(request)

    def _too_long(self, request: Asked) -> str | None:
        limit = self.config.max_model_len
        if request.num_prompt_tokens > limit:
            return f"the prompt of {request.num_prompt_tokens} tokens is longer than max_model_len {limit}"
        if not self.config.enable_chunked_prefill and request.num_prompt_tokens > self.config.max_num_batched_tokens:
            return (
                f"the prompt of {request.num_prompt_tokens} tokens does not fit max_num_batched_tokens "
                f"{self.config.max_num_batched_tokens} and chunked prefill is off"
            )
        return None

    def _too_large(self, request: Asked) -> str | None:
        # the last token that is sampled needs no slot
        whole = min(request.num_prompt_tokens + request.max_tokens - 1, self.config.max_model_len)
        usable = self.config.num_gpu_blocks - 1
        for tokens, what in ((request.num_prompt_tokens, "the prompt"), (whole, "prompt and answer")):
            needed = self._least_blocks(tokens)
            if needed > usable:
                return f"{what} of {tokens} tokens need {needed} blocks, the pool has {usable}"
        return None

    def _least_blocks(self, tokens: int) -> int:
        """Blocks without which no schedule can bring a request to so many tokens."""
        needed = 0
        for group in self.config.groups:
            if group.window is None:
                needed += -(-tokens // group.block_size)
            else:
                first_kept = max(tokens - group.window, 0) // group.block_size
                needed += -(-tokens // group.block_size) - first_kept
        return needed

    def _items_never(self, request: Asked) -> str | None:
        if not request.mm_hashes:
            return None
        config = self.config
        limits = (
            (config.encoder_capacity, "the encoder cache", True),
            (config.encoder_compute_budget, "a step's encoder budget", True),
            (config.max_num_batched_tokens, "a step's token budget, and chunks may not split it",
             config.disable_chunked_mm_input),
        )  # fmt: skip
        own: dict[str, int] = {}
        for identifier, item in zip(request.mm_hashes, request.mm_positions, strict=True):
            for limit, what, applies in limits:
                if applies and item.length > limit:
                    return f"item {identifier!r} of {item.length} embeddings is larger than {what}: {limit}"
            known = own.setdefault(identifier, self._item_lengths.get(identifier, item.length))
            if known != item.length:
                return f"item {identifier!r} has {item.length} embeddings here and had {known} before"
        self._item_lengths.update(own)
        return None

    def stuck(
        self, scheduler: Scheduler, output: SchedulerOutput, *, others_in_flight: bool = False
    ) -> list[tuple[Request, str]]:
        """Requests of which this step makes certain that they never end, with the reasons.

        Called after every `schedule`, before anything is applied.  `others_in_flight` says that results
        of earlier batches (empty ones have none) are still to come, which may change what can be scheduled.
        """
        found: list[tuple[Request, str]] = []
        if output.preempted:
            request = output.preempted[-1]
            others = len(scheduler.running)
            if not others and self._no_further_than_before(scheduler, request):
                # it had the whole pool to itself by then
                found.append(
                    (request, f"alone in the engine it lacks blocks at {request.num_tokens} tokens ({self._pool()})")
                )
            elif others and self._all_as_before(scheduler, request):
                found.append(
                    (
                        request,
                        f"it gives way at {request.num_tokens} tokens again and again to {others} "
                        f"request{'s' * (others > 1)} that cannot go on beside it ({self._pool()})",
                    )
                )
        elif not output.scheduled and not output.preempted and not others_in_flight:
            if scheduler.running:
                request = scheduler.running[0]
                found.append((request, f"no token of it can be scheduled after {request.num_computed_tokens}"))
            elif scheduler.waiting:
                request = scheduler.waiting.peek()
                found.append((request, f"it is not admitted to an empty engine ({self._why_not_admitted(request)})"))
        for entry in output.scheduled.values():
            request = entry.request
            limit = self.config.max_model_len
            # a chunk stops one token short of max_model_len, so the last prompt token is never computed
            if request.num_prompt_tokens >= limit and request.is_prefill_chunk and not entry.samples:
                found.append(
                    (request, f"a prompt of max_model_len ({limit}) tokens does not end once it is computed in chunks")
                )
        return found

    def _no_further_than_before(self, scheduler: Scheduler, request: Request) -> bool:
        """Whether a request that gave way to itself would begin its next life just as an earlier one.

        Its next life begins with the tokens that it knows and the prefix that it left in the cache; from
        the same beginning the same steps follow.
        """
        beginning = (request.num_tokens, scheduler.kv_cache_manager.get_computed_blocks(request)[1])
        earlier = self._beginnings.setdefault(request, set())
        if beginning in earlier:
            return True
        earlier.add(beginning)
        return False

    def _all_as_before(self, scheduler: Scheduler, request: Request) -> bool:
        """Whether a request gives way in a state of the whole engine in which it did so before.

        Nobody has come, ended or got a token in between, and from the same state the same steps follow.
        What the others would find in the cache is only looked up once all else was there before.
        """
        running = tuple((other.index, other.num_tokens, other.num_computed_tokens) for other in scheduler.running)
        waiting = tuple((other.index, other.num_tokens) for other in scheduler.waiting)
        state: tuple[int, ...] = (hash(running), hash(waiting))
        earlier = self._states.setdefault(request, set())
        if state not in earlier:
            earlier.add(state)
            return False
        found = hash(tuple(scheduler.kv_cache_manager.get_computed_blocks(other)[1] for other in scheduler.waiting))
        state = (*state, found)
        if state in earlier:
            return True
        earlier.add(state)
        return False

    def _why_not_admitted(self, request: Request) -> str:
        limit = self.config.max_num_batched_tokens
        if not self.config.enable_chunked_prefill and request.num_tokens > limit:
            return f"{request.num_tokens} known tokens, max_num_batched_tokens is {limit} and chunked prefill is off"
        return self._pool()

    def _pool(self) -> str:
        return f"{self.config.num_gpu_blocks - 1} usable blocks"
