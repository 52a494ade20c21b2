"""What a step's time depends on, and what every model of it offers.

A `Batch` says in a few sums what one engine step computes.  A `StepTime` turns it into seconds,
one at a time or whole columns at once, with the same result to the last bit: models use only
additions, products, quotients, square roots, minima and maxima, which IEEE 754 rounds alike for
Python floats and numpy arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


class Batch(NamedTuple):
    """What one step computes, as sums over its requests.

    A *decode* request computes one token after its prompt; everything else is a *prefill chunk* of
    n tokens that follow c tokens computed before (hits included).

    - `prefill_tokens`, `prefill_requests`: tokens of all chunks, and how many chunks.
    - `decode_requests`: requests that compute one token each.
    - `context_tokens`: tokens computed before this step that its requests read: over decode
      requests and prefill chunks together.
    - `prefill_context_tokens`: the share of `context_tokens` that belongs to prefill chunks.
    - `attention_pairs`: sum over the chunks of n·(c + (n + 1)/2): pairs of a token and one it sees.
    - `encoder_tokens`: embeddings that the multimodal encoder makes in this step.
    """

    prefill_tokens: int = 0
    prefill_requests: int = 0
    decode_requests: int = 0
    context_tokens: int = 0
    prefill_context_tokens: int = 0
    attention_pairs: float = 0.0
    encoder_tokens: int = 0

    @classmethod
    def of(cls, chunks: list[tuple[int, int]], decode_contexts: list[int], encoder_tokens: int = 0) -> Batch:
        """Sum up a step: prefill chunks as (new tokens, tokens before), decodes as tokens before."""
        prefill_context = sum(before for _, before in chunks)
        return cls(
            prefill_tokens=sum(new for new, _ in chunks),
            prefill_requests=len(chunks),
            decode_requests=len(decode_contexts),
            context_tokens=prefill_context + sum(decode_contexts),
            prefill_context_tokens=prefill_context,
            attention_pairs=sum(new * (before + (new + 1) / 2) for new, before in chunks),
            encoder_tokens=encoder_tokens,
        )


class StepTime(Protocol):
    """How long a step takes.  Pure: the same batch always takes the same time."""

    def seconds(self, batch: Batch) -> float:
        """Seconds that this step takes; never negative."""

    def seconds_many(self, columns: Mapping[str, npt.NDArray[np.generic]]) -> FloatArray:
        """Seconds of many steps at once: arrays of one length under the names of `Batch`'s fields.

        A field that is missing counts as 0 throughout.  Element i equals `seconds` of row i exactly.
        """

    def describe(self) -> str:
        """One line for people: the kind of model and the figures that it uses."""


def column_reader(columns: Mapping[str, npt.NDArray[np.generic]]) -> tuple[int, dict[str, FloatArray]]:
    """The number of rows and every field of `Batch` as float64, zeros where a column is missing.

    Raises `ValueError` for a name that is no field of `Batch` or for columns of unequal length.
    """
    unknown = sorted(set(columns) - set(Batch._fields))
    if unknown:
        raise ValueError(f"no such field of a batch: {', '.join(unknown)}; there are {', '.join(Batch._fields)}")
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise ValueError(f"columns of unequal length: {sorted(lengths)}")
    rows = lengths.pop() if lengths else 0
    zeros = np.zeros(rows)
    return rows, {
        name: np.asarray(columns[name], dtype=np.float64) if name in columns else zeros for name in Batch._fields
    }
