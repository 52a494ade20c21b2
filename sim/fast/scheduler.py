"""One step, literally by the rules: what the calendar falls back to when something irregular happens.

It holds the state that both share: the running requests in order, the waiting queue, the pool.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sim.core.scheduler_config import SchedulerConfig
from sim.errors import InvariantError
from sim.fast.batch import FastBatch
from sim.fast.encoder import FastEncoderCache
from sim.fast.kernel import make_pool
from sim.fast.keys import KeyTable, U64Array
from sim.fast.pool import KeyEvents
from sim.fast.request import ABORTED, FINISHED, PREEMPTED, REJECTED, RUNNING, WAITING, FastRequest
from sim.fast.waiting import FirstComeQueue, PriorityQueue, WaitingQueue
from sim.fast.watch import Watch

_ANY = 1 << 62
_NOT_BLOCKED = (1, 0)


class FastScheduler:
    """Requests, queues and blocks of one engine.

    Attributes:
        running: in order of admission.
        waiting: the queue of those that are not running.
        block_size: tokens of a block.
        alive: number of requests that have not ended.
        watch: explains misses, if anything does.
        endless: how many of them can fail to end, because their prompts reach max_model_len.
    """

    def __init__(self, config: SchedulerConfig, *, events: KeyEvents | None = None, watch: Watch | None = None) -> None:
        self.config = config
        self.block_size = config.groups[0].block_size
        self.keys = KeyTable()
        self.pool = make_pool(config.num_gpu_blocks, self.keys, events, watch)
        self.encoder = FastEncoderCache(config.encoder_capacity)
        self.by_priority = config.scheduling_policy == "priority"
        self.waiting: WaitingQueue = PriorityQueue() if self.by_priority else FirstComeQueue()
        self.running: list[FastRequest] = []
        self.admissions = 0
        self.alive = self.endless = 0
        self.watch = watch
        self._blocked = _NOT_BLOCKED
        self.now_s = 0.0

    def set_time(self, now_s: float) -> None:
        """Everything from here on happens at this time."""
        self.now_s = now_s
        self.pool.now_s = now_s

    def add(self, request: FastRequest, fingerprints: U64Array) -> None:
        """A request arrives, with the fingerprints of its full blocks, prompt and answer."""
        if self.config.enable_prefix_caching:
            request.keyed_blocks = len(fingerprints)
            request.spans = self.keys.intern(fingerprints, request)
        self.waiting.add(request)
        self.alive += 1
        self.endless += request.prompt_tokens >= self.config.max_model_len
        self._blocked = _NOT_BLOCKED

    def can_admit(self, budget: int) -> bool:
        """Whether a waiting request might start with this token budget; False is certain.

        What `admit` found out stays true until a request arrives, starts or ends, or a block is
        released or given a key.
        """
        if budget <= 0 or not self.waiting.entries or len(self.running) >= self.config.max_num_seqs:
            return False
        low, high = self._blocked
        return not low <= budget <= high

    # ---- one step ---------------------------------------------------------------------------

    def schedule(self, now_s: float) -> FastBatch:
        """Decide one batch; every running request's counters must be up to date."""
        self.set_time(now_s)
        batch = FastBatch(self.config.max_num_batched_tokens, self.config.encoder_compute_budget)
        self._schedule_running(batch)
        if not batch.preempted:
            self.admit(batch)
        self.advance(batch)
        return batch

    def _schedule_running(self, batch: FastBatch) -> None:
        running = self.running
        position = 0
        while position < len(running) and batch.budget > 0:
            request = running[position]
            position += 1
            if self.ends_in_flight(request):
                continue
            tokens = self.chunk(request, batch.budget)
            items: list[int] = []
            if request.items and tokens:
                tokens, items = self.encode(request, request.computed, tokens, batch)
            if tokens == 0:
                continue
            before = request.blocks
            while not self.extend(request, tokens):
                victim = max(running, key=_rank) if self.by_priority else running[-1]
                running.remove(victim)
                if batch.withdraw(victim):
                    position -= 1
                self._preempt(victim, batch)
                if victim is request:
                    break
            if request.status == PREEMPTED:
                if self.by_priority:
                    position -= 1
                    continue
                break
            batch.add(request, tokens, before)
            if items:
                self.take_embeddings(request, items, batch)

    def admit(self, batch: FastBatch) -> None:
        """Start waiting requests as far as budget, seats and memory go."""
        config, waiting, running = self.config, self.waiting, self.running
        loras = {r.lora.id for r in running if r.lora is not None} if config.max_loras is not None else set()
        passed_over: list[FastRequest] = []
        while waiting and batch.budget > 0:
            if len(running) >= config.max_num_seqs:
                break
            request = waiting.peek()
            lora = request.lora
            if request.stale or (
                config.max_loras is not None
                and lora is not None
                and lora.id not in loras
                and len(loras) >= config.max_loras
            ):
                passed_over.append(waiting.pop())
                continue
            hit = self.lookup(request)
            computed = hit * self.block_size
            tokens = request.known - computed
            threshold = config.long_prefill_token_threshold
            if 0 < threshold < tokens and len(running) + len(waiting) > 1:
                tokens = threshold
            if tokens > batch.budget and not config.enable_chunked_prefill:
                self._blocked = (0, tokens - 1)
                break
            tokens = min(tokens, batch.budget)
            items: list[int] = []
            if request.items:
                tokens, items = self.encode(request, computed, tokens, batch)
                if tokens == 0:
                    passed_over.append(waiting.pop())
                    continue
            if not self._start(request, hit, tokens):
                self.encoder.release(request.index, request.items, _ANY)
                if not request.items:
                    # nor once others take its prefix: each block of it that is lost is a free block less, too
                    self._blocked = (batch.budget, _ANY)
                break
            waiting.pop()
            self._blocked = _NOT_BLOCKED  # what was known was of this one, not of those behind it
            request.seq = self.admissions
            self.admissions += 1
            running.append(request)
            if lora is not None:
                loras.add(lora.id)
            if config.enable_prefix_caching:
                batch.query(request, computed)
            if request.cached_tokens < 0:
                request.cached_tokens = computed
                request.first_scheduled_s = self.now_s
            if self.pool.phantom and computed:
                request.phantom_tokens += self.block_size * len(
                    self.pool.phantom.intersection(request.table[:hit].tolist())
                )
            request.status = RUNNING
            request.computed = computed
            batch.add(request, tokens, 0)
            if items:
                self.take_embeddings(request, items, batch)
        if passed_over:
            if any(request.stale or request.items for request in passed_over):
                self._blocked = _NOT_BLOCKED
            elif not waiting:
                self._blocked = (0, _ANY)
            waiting.give_back(passed_over)

    def chunk(self, request: FastRequest, budget: int) -> int:
        """How many tokens a running request may compute with this budget, its items aside."""
        tokens = request.known + request.placeholders - request.computed
        threshold = self.config.long_prefill_token_threshold
        if 0 < threshold < tokens and len(self.running) + len(self.waiting) > 1:
            tokens = threshold
        return max(min(tokens, budget, self.config.max_model_len - 1 - request.computed), 0)

    def advance(self, batch: FastBatch) -> None:
        """The batch is on its way: its tokens count as computed."""
        asynchronous = self.config.async_scheduling
        for entry in batch.entries:
            request = entry.request
            entry.computed_before = request.computed
            if request.computed < request.done:
                request.recomputed += min(request.computed + entry.tokens, request.done) - request.computed
            request.computed += entry.tokens
            entry.samples = request.computed >= request.known + request.placeholders
            if asynchronous:
                request.in_flight += entry.tokens
                if entry.samples:
                    request.placeholders += 1

    # ---- blocks -----------------------------------------------------------------------------

    def lookup(self, request: FastRequest) -> int:
        """Length of the longest cached prefix, at least one token short of what the request knows, in blocks.

        The blocks found are in the table of the request, which holds none.
        """
        most = min((request.known - 1) // self.block_size, request.keyed_blocks)
        return self.pool.find(request.spans, most, request.table)

    def _start(self, request: FastRequest, hit: int, tokens: int) -> bool:
        """Give a waiting request the `hit` blocks that `lookup` found, and new ones for `tokens` tokens.

        False: there are too few, and nothing has changed.
        """
        config, pool = self.config, self.pool
        size = self.block_size
        total = min(hit * size + tokens, config.max_model_len)
        free = pool.num_free
        if self.running:
            free -= config.watermark_blocks
        woken = pool.unused(request.table, hit) if hit else 0
        if config.scheduler_reserve_full_isl:
            whole = -(-min(request.known, config.max_model_len) // size)
            if max(whole - hit, 0) + woken > free:
                return False
        new = -(-total // size) - hit
        if new + woken > free:
            return False
        if self.watch is not None and config.enable_prefix_caching:
            self.watch.admitted(request.index, request.spans, hit, request.known)
        if hit:
            pool.touch(request.table, hit)
        if new:
            pool.take(new, request.index, request.table, hit)
        request.blocks = hit + new
        request.cached = hit
        self.give_keys(request, min(total, request.known))
        return True

    def extend(self, request: FastRequest, tokens: int) -> bool:
        """Give a running request the blocks for `tokens` more tokens; False: nothing changed."""
        size = self.block_size
        total = min(request.computed + tokens, self.config.max_model_len)
        new = -(-total // size) - request.blocks
        if new > 0:
            if new > self.pool.num_free:
                return False
            self.pool.take(new, request.index, request.table, request.blocks)
            request.blocks += new
        self.give_keys(request, min(total, request.known))
        return True

    def give_keys(self, request: FastRequest, tokens: int) -> None:
        """The blocks that are full with the first `tokens` tokens get their keys, if they have none yet."""
        full = min(tokens // self.block_size, request.keyed_blocks)
        start = request.cached
        if full <= start:
            return
        pool = self.pool
        pool.give_keys(request.spans, request.table, start, full)
        if pool.events is not None:
            keys = self.keys_of(request, max(start - 1, 0), full)
            pool.events.stored(keys[1:] if start else keys, keys[0] if start else None)
        if self.watch is not None:
            self.watch.stored(request.index, request.spans, start, full)
        request.cached = full
        self._blocked = _NOT_BLOCKED

    @staticmethod
    def keys_of(request: FastRequest, start: int, end: int) -> list[int]:
        """Keys of blocks ``start … end - 1`` of a request."""
        keys: list[int] = []
        for first, base, length in request.spans:
            keys.extend(range(base + max(start - first, 0), base + min(end - first, length)))
        return keys

    def release(self, request: FastRequest) -> None:
        """All blocks and embeddings of a request are let go."""
        if request.blocks:
            self.pool.release(request.table, request.blocks, request.cached)
            self._blocked = _NOT_BLOCKED
        request.blocks = request.cached = 0
        if request.items:
            self.encoder.release(request.index, request.items, _ANY)

    def _preempt(self, request: FastRequest, batch: FastBatch) -> None:
        computed = request.computed // self.block_size
        if request.cached > computed and batch.withdrawn is request:
            self.pool.phantom.update(request.table[computed : request.cached].tolist())
        self.release(request)
        request.done = max(request.done, request.computed)
        request.stale = request.in_flight
        request.computed = request.placeholders = 0
        request.preemptions += 1
        request.status = PREEMPTED
        if self.watch is not None:
            self.watch.preempted(request.index, request.done)
        self.waiting.add_front(request)
        batch.preempted.append(request)

    # ---- multimodal items ---------------------------------------------------------------------

    def encode(self, request: FastRequest, computed: int, tokens: int, batch: FastBatch) -> tuple[int, list[int]]:
        """Cut a chunk where an item cannot be encoded now; which items to take in (one of equal ones is encoded)."""
        encoder, budget, planned = self.encoder, batch.encoder_budget, 0
        chosen: list[int] = []
        identifiers: set[str] = set()
        for number, item in enumerate(request.items):
            if item.offset >= computed + tokens:
                break
            end = item.offset + item.length
            if end <= computed:
                continue
            if self.config.disable_chunked_mm_input and computed <= item.offset and computed + tokens < end:
                tokens = item.offset - computed
                break
            if item.identifier in identifiers:
                chosen.append(number)
                continue
            if encoder.hit(request.index, number, item):
                continue
            if not encoder.can_allocate(item, budget, planned):
                tokens = max(item.offset - computed, 0)
                break
            planned += item.length
            budget -= item.length
            chosen.append(number)
            identifiers.add(item.identifier)
        return tokens, chosen

    def take_embeddings(self, request: FastRequest, items: list[int], batch: FastBatch) -> None:
        """Put into the encoder cache what `encode` chose; of equal items one is encoded."""
        encoded = []
        for number in items:
            item = request.items[number]
            if not self.encoder.hit(request.index, number, item):
                self.encoder.allocate(request.index, number, item)
                batch.encoder_budget -= item.length
                batch.encoder_tokens += item.length
                encoded.append(number)
        batch.encoder_inputs[request] = encoded

    # ---- end of a step ------------------------------------------------------------------------

    def apply(self, batch: FastBatch, now_s: float) -> list[FastRequest]:
        """The batch has run: samples become known.  Returns the requests to `finish`, in scheduling order."""
        self.set_time(now_s)
        asynchronous = self.config.async_scheduling
        ended: list[FastRequest] = []
        for entry in batch.entries:
            request = entry.request
            if asynchronous:
                request.in_flight -= entry.tokens
            if request.status >= FINISHED:
                continue
            stale = request.stale > 0
            if stale:
                request.stale -= entry.tokens
                self._blocked = _NOT_BLOCKED
            if request.items and not stale:
                self.encoder.release(request.index, request.items, request.computed - request.placeholders)
            if not entry.samples:
                continue
            batch.token(request, now_s)
            request.known += 1
            if asynchronous and not stale:
                held, request.placeholders = request.placeholders, request.placeholders - 1
                if held and request.status == RUNNING:
                    self.give_keys(request, min(request.computed - request.in_flight, request.known))
            if request.known >= request.stop_tokens:
                ended.append(request)
        return ended

    def finish(self, request: FastRequest, now_s: float) -> None:
        """A request ends that `apply` returned, or that the calendar knows to have sampled its last token."""
        self.set_time(now_s)
        self.end(request, FINISHED, now_s)

    def end(self, request: FastRequest, status: int, now_s: float) -> None:
        """A request ends, wherever it stands: its blocks are released."""
        if request.status == RUNNING:
            self.running.remove(request)
        elif request.status in (WAITING, PREEMPTED):
            self.waiting.remove(request)
        self._blocked = _NOT_BLOCKED
        self.release(request)
        if self.watch is not None:
            self.watch.ended(request.index)
        request.status = status
        request.ended_s = now_s
        self.keys.forget(request)
        self.alive -= 1
        self.endless -= request.prompt_tokens >= self.config.max_model_len

    def abort(self, request: FastRequest, now_s: float) -> bool:
        """The client goes away between two steps; False if the request has ended already."""
        if request.status >= FINISHED:
            return False
        self.set_time(now_s)
        self.end(request, ABORTED, now_s)
        return True

    def reject(self, request: FastRequest, reason: str, now_s: float) -> None:
        """A living request never would end."""
        self.set_time(now_s)
        self.end(request, REJECTED, now_s)
        request.reason = reason

    def ends_in_flight(self, request: FastRequest) -> bool:
        """Whether the batches in flight already bring a request to its end."""
        held = request.placeholders
        return held > 0 and request.computed + 2 - held >= request.prompt_tokens + request.max_tokens

    def requests(self) -> Iterator[FastRequest]:
        """All requests that have not ended."""
        yield from self.running
        yield from self.waiting

    def check(self) -> None:
        """Verify that tables, queues and pool agree; `InvariantError` names the law that does not hold.

        The counters of requests in a calendar are not looked at.
        """
        self.pool.check()
        held = np.zeros(self.pool.num_blocks, dtype=np.int64)
        for request in self.requests():
            held += np.bincount(request.table[: request.blocks], minlength=len(held))
        if not np.array_equal(held, self.pool.references):
            block = int(np.flatnonzero(held != self.pool.references)[0])
            raise InvariantError(
                f"law 2: block {block} is in {held[block]} tables and counts {self.pool.references[block]} references"
            )
        if self.alive != len(self.running) + len(self.waiting):
            raise InvariantError(f"law 5: {len(self.running)} run, {len(self.waiting)} wait, {self.alive} are alive")


def _rank(request: FastRequest) -> tuple[int, float]:
    """The running request with the largest rank is preempted first."""
    return request.priority, request.arrival_s
