"""What the fast path knows of one request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from sim.fast.keys import Span, _Run
    from workloads.spec import LoRA, MultiModalItem

I64Array = npt.NDArray[np.int64]

WAITING, RUNNING, PREEMPTED, FINISHED, ABORTED, REJECTED = range(6)


class FastRequest:
    """A request in the fast engine; numbers of tokens and blocks unless a name says otherwise.

    While a request stands in the calendar, `computed` and `known` are not kept up to date: see
    `sim.fast.calendar`.  ``table[:blocks]`` are its block ids, ``spans`` the keys of its full blocks,
    ``cached`` the number of leading blocks that have been given their keys.
    """

    __slots__ = (
        "__weakref__",
        "arrival_s",
        "base",
        "blocks",
        "cached",
        "cached_tokens",
        "computed",
        "dated",
        "done",
        "eager",
        "ended_s",
        "first_scheduled_s",
        "first_token_s",
        "in_flight",
        "index",
        "items",
        "keyed_blocks",
        "known",
        "last_scheduled",
        "last_step",
        "last_token_s",
        "last_tokens",
        "lora",
        "max_tokens",
        "phantom_tokens",
        "placeholders",
        "preemptions",
        "priority",
        "prompt_blocks",
        "prompt_tokens",
        "reason",
        "recomputed",
        "request_id",
        "run",
        "seq",
        "spans",
        "stale",
        "status",
        "stop_tokens",
        "table",
        "watched",
    )

    def __init__(
        self,
        index: int,
        request_id: str,
        *,
        prompt_tokens: int,
        answer_tokens: int,
        max_tokens: int,
        block_size: int,
        max_model_len: int,
        arrival_s: float = 0.0,
        priority: int = 0,
        lora: LoRA | None = None,
        items: tuple[MultiModalItem, ...] = (),
    ) -> None:
        self.index = index
        self.request_id = request_id
        self.arrival_s = arrival_s
        self.priority = priority
        self.lora = lora
        self.items = items
        self.prompt_tokens = prompt_tokens
        self.prompt_blocks = prompt_tokens // block_size
        self.max_tokens = max_tokens
        #: it ends when it knows this many tokens
        self.stop_tokens = max(min(prompt_tokens + min(answer_tokens, max_tokens), max_model_len), prompt_tokens + 1)
        self.known = prompt_tokens
        self.computed = 0
        self.placeholders = 0
        self.in_flight = 0
        self.stale = 0
        self.spans: list[Span] = []
        self.keyed_blocks = 0
        self.run: _Run | None = None
        self.eager = False
        self.watched = False
        self.table: I64Array = np.empty(self.stop_tokens // block_size + 2, dtype=np.int64)
        self.blocks = 0
        self.cached = 0
        #: number of admission, which is the order of the running requests
        self.seq = -1
        #: it stands in the calendar; it then has computed ``step - base`` tokens when step `step` starts
        self.dated = False
        self.base = 0
        self.status = WAITING
        #: why it was rejected
        self.reason = ""
        self.preemptions = 0
        self.recomputed = 0
        self.done = 0
        self.phantom_tokens = 0
        self.cached_tokens = -1
        self.first_scheduled_s = -1.0
        self.first_token_s = -1.0
        self.ended_s = -1.0
        #: the last step that scheduled it outside the calendar, and how many tokens
        self.last_scheduled = -1
        self.last_tokens = 0
        #: step and time of its last token
        self.last_step = -1
        self.last_token_s = 0.0

    # the names by which `sim.core.admission` asks

    @property
    def num_prompt_tokens(self) -> int:
        """Length of the prompt."""
        return self.prompt_tokens

    @property
    def num_tokens(self) -> int:
        """Known tokens."""
        return self.known

    @property
    def num_computed_tokens(self) -> int:
        """Computed tokens."""
        return self.computed

    @property
    def is_prefill_chunk(self) -> bool:
        """Whether known or promised tokens are still to be computed."""
        return self.computed < self.known + self.placeholders

    def __repr__(self) -> str:
        return f"<FastRequest {self.index} {self.request_id!r} known={self.known} computed={self.computed}>"
