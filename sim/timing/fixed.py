"""Every step takes the same time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from sim.timing.base import Batch, FloatArray, column_reader


class FixedStepTime:
    """`step_s` seconds, whatever the batch holds."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s

    def seconds(self, batch: Batch) -> float:
        """`step_s`."""
        return self.step_s

    def seconds_many(self, columns: Mapping[str, npt.NDArray[np.generic]]) -> FloatArray:
        """`step_s` for every row."""
        rows, _ = column_reader(columns)
        return np.full(rows, self.step_s)

    def describe(self) -> str:
        """The one figure."""
        return f"fixed: {self.step_s * 1e3:g} ms a step"
