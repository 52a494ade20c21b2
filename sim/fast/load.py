"""What a step computes, and how long it takes."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from sim.fast.batch import FastBatch


class Load(NamedTuple):
    """What a step computes; the fields of `sim.timing.base.Batch`, which step times read by name."""

    prefill_tokens: int = 0
    prefill_requests: int = 0
    decode_requests: int = 0
    context_tokens: int = 0
    prefill_context_tokens: int = 0
    attention_pairs: float = 0.0
    encoder_tokens: int = 0


class StepSeconds(Protocol):
    """How long a step takes; see `sim.timing.base.StepTime`."""

    def seconds(self, batch: Load) -> float:
        """Seconds of one step."""


def load_of(batch: FastBatch, decodes: int = 0, context: int = 0) -> Load:
    """The load of a batch, and of `decodes` requests beside it that read `context` tokens."""
    chunks = prefill_tokens = prefill_context = 0
    pairs = 0.0
    for entry in batch.entries:
        tokens, before = entry.tokens, entry.computed_before
        if tokens == 1 and before >= entry.request.prompt_tokens:
            decodes += 1
            context += before
        else:
            chunks += 1
            prefill_tokens += tokens
            prefill_context += before
            pairs += tokens * (before + (tokens + 1) / 2)
    context += prefill_context
    return Load(prefill_tokens, chunks, decodes, context, prefill_context, pairs, batch.encoder_tokens)


def step_row(
    batch: FastBatch,
    load: Load,
    state: tuple[int, int, int],
    usable_blocks: int,
    evicted: int,
    time_s: tuple[float, float],
    ended: int,
) -> tuple[float | int, ...]:
    """A row of the table ``steps``, in the order of its columns.

    Args:
        batch: what was scheduled; its `step` is the number of the step.
        load: what it computes.
        state: running and waiting requests and free blocks once it was scheduled.
        usable_blocks: blocks of the pool without the null block.
        evicted: keys that it cost.
        time_s: when it began and ended.
        ended: requests that ended with it.
    """
    running, waiting, blocks = state
    start_s, end_s = time_s
    return (
        batch.step,
        start_s,
        end_s - start_s,
        running,
        waiting,
        load.prefill_requests,
        load.prefill_tokens,
        load.decode_requests,
        load.context_tokens,
        load.encoder_tokens,
        blocks,
        1.0 - blocks / usable_blocks if usable_blocks else 0.0,
        len(batch.preempted),
        ended,
        batch.queries[1],
        batch.queries[2],
        batch.queries[4],
        batch.queries[5],
        evicted,
    )
