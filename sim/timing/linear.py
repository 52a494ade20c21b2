"""Step time as a sum of four products, for engines whose coefficients were measured."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from sim.timing.base import Batch, FloatArray, column_reader


class LinearStepTime:
    """Seconds = step + prefill tokens · p + decode requests · d + cached tokens read / 1000 · c + encoder tokens · e.

    All coefficients are seconds and not negative; "cached tokens read" is `Batch.context_tokens`.
    """

    def __init__(
        self,
        step_s: float,
        prefill_token_s: float = 0.0,
        decode_request_s: float = 0.0,
        context_kilotoken_s: float = 0.0,
        encoder_token_s: float = 0.0,
    ) -> None:
        self.step_s = step_s
        self.prefill_token_s = prefill_token_s
        self.decode_request_s = decode_request_s
        self.context_kilotoken_s = context_kilotoken_s
        self.encoder_token_s = encoder_token_s

    def seconds(self, batch: Batch) -> float:
        """The sum for one batch."""
        return (
            self.step_s
            + self.prefill_token_s * batch.prefill_tokens
            + self.decode_request_s * batch.decode_requests
            + self.context_kilotoken_s * (batch.context_tokens / 1000.0)
            + self.encoder_token_s * batch.encoder_tokens
        )

    def seconds_many(self, columns: Mapping[str, npt.NDArray[np.generic]]) -> FloatArray:
        """The sum for every row."""
        _, column = column_reader(columns)
        return (
            self.step_s
            + self.prefill_token_s * column["prefill_tokens"]
            + self.decode_request_s * column["decode_requests"]
            + self.context_kilotoken_s * (column["context_tokens"] / 1000.0)
            + self.encoder_token_s * column["encoder_tokens"]
        )

    def describe(self) -> str:
        """The coefficients with their units."""
        return (
            f"linear: {self.step_s * 1e3:g} ms a step + {self.prefill_token_s * 1e6:g} µs a prefill token"
            f" + {self.decode_request_s * 1e6:g} µs a decode request"
            f" + {self.context_kilotoken_s * 1e6:g} µs a thousand cached tokens"
        )
