"""What one step schedules."""

from __future__ import annotations

from sim.fast.request import FastRequest


class Entry:
    """One request in a batch: `tokens` from `computed_before` on; its table was `blocks_before` long."""

    __slots__ = ("blocks_before", "computed_before", "request", "samples", "tokens")

    def __init__(self, request: FastRequest, tokens: int, blocks_before: int) -> None:
        self.request = request
        self.tokens = tokens
        self.blocks_before = blocks_before
        self.computed_before = request.computed
        self.samples = False


class FastBatch:
    """A batch while it is being made and until it is applied.

    Attributes:
        budget: tokens that may still be scheduled.
        encoder_budget: embeddings that may still be computed.
        entries: in scheduling order.
        preempted: in the order in which it happened.
        decodes: requests that the calendar schedules beside `entries`, one token each.
        withdrawn: the last victim that had been scheduled in this very step.
        step: its number; set by the engine.
        stalls: for each token that did not come one step after the one before: request, seconds in between.
    """

    __slots__ = (
        "_budget",
        "budget",
        "decodes",
        "encoder_budget",
        "encoder_inputs",
        "encoder_tokens",
        "entries",
        "preempted",
        "queries",
        "stalls",
        "step",
        "withdrawn",
    )

    def __init__(self, budget: int, encoder_budget: int, decodes: int = 0) -> None:
        self._budget = budget
        self.budget = budget - decodes
        self.decodes = decodes
        self.encoder_budget = encoder_budget
        self.encoder_tokens = 0
        self.encoder_inputs: dict[FastRequest, list[int]] = {}
        self.entries: list[Entry] = []
        self.preempted: list[FastRequest] = []
        self.withdrawn: FastRequest | None = None
        self.step = 0
        self.stalls: list[tuple[FastRequest, float]] = []
        #: requests, queried tokens, hit tokens; then the same for requests that had been preempted
        self.queries = [0, 0, 0, 0, 0, 0]

    @property
    def tokens(self) -> int:
        """Tokens scheduled so far."""
        return self._budget - self.budget

    def add(self, request: FastRequest, tokens: int, blocks_before: int) -> None:
        """Schedule `tokens` of a request."""
        self.entries.append(Entry(request, tokens, blocks_before))
        self.budget -= tokens

    def withdraw(self, request: FastRequest) -> bool:
        """A victim gives back what this step had scheduled for it; False if that was nothing."""
        for position, entry in enumerate(self.entries):
            if entry.request is request:
                del self.entries[position]
                self.budget += entry.tokens
                for number in self.encoder_inputs.pop(request, ()):
                    length = request.items[number].length
                    self.encoder_budget += length
                    self.encoder_tokens -= length
                self.withdrawn = request
                return True
        return False

    def query(self, request: FastRequest, hit_tokens: int) -> None:
        """A request started with this hit."""
        first = 3 if request.preemptions else 0
        self.queries[first] += 1
        self.queries[first + 1] += request.known
        self.queries[first + 2] += hit_tokens

    def token(self, request: FastRequest, now_s: float) -> None:
        """A token of a request is there at the end of this batch."""
        if request.first_token_s < 0:
            request.first_token_s = now_s
        elif request.last_step != self.step - 1:
            self.stalls.append((request, now_s - request.last_token_s))
        request.last_step, request.last_token_s = self.step, now_s
