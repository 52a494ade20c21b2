"""Step times from measured points, interpolated between them.

The points must form a complete grid over prefill tokens, decode requests and context tokens (an
axis with one value only is not looked at).  Between grid points the time is interpolated linearly
along each axis.  Outside the grid nothing is known: a step there is an error, or, where the
configuration says `clamp`, takes the time of the nearest point and is counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from sim.timing.base import Batch, FloatArray, column_reader
from sim.timing.points import AXES, MeasuredPoints, MeasurementError


class TableStepTime:
    """Interpolates `points`; several measurements of one point count with their mean.

    `clamp` False: a step outside the grid raises `MeasurementError`.  True: it is moved to the
    grid's edge, and `clamped_steps` counts it.
    """

    def __init__(self, points: MeasuredPoints, *, clamp: bool = False, name: str = "table") -> None:
        self.name = name
        self.clamp = clamp
        self.clamped_steps = 0
        values = [points.columns[axis] for axis in AXES]
        self._grid = [np.unique(column) for column in values]
        shape = tuple(len(axis) for axis in self._grid)
        where = tuple(np.searchsorted(axis, column) for axis, column in zip(self._grid, values, strict=True))
        total, count = np.zeros(shape), np.zeros(shape)
        np.add.at(total, where, points.seconds)
        np.add.at(count, where, 1.0)
        if (count == 0).any():
            first = np.argwhere(count == 0)[0]
            missing = ", ".join(
                f"{axis} {grid[i]:g}" for axis, grid, i in zip(AXES, self._grid, first, strict=True) if len(grid) > 1
            )
            raise MeasurementError(
                f"{name}: interpolation needs a complete grid, but {int((count == 0).sum())} of {count.size} points"
                f" are missing, the first at {missing}"
            )
        self._seconds = total / count

    def seconds(self, batch: Batch) -> float:
        """Seconds of one step.  Raises `MeasurementError` outside the grid unless clamping."""
        columns = {axis: np.array([float(getattr(batch, axis))]) for axis in AXES}
        return float(self._interpolate(columns)[0])

    def seconds_many(self, columns: Mapping[str, npt.NDArray[np.generic]]) -> FloatArray:
        """Seconds of many steps.  Raises `MeasurementError` outside the grid unless clamping."""
        _, column = column_reader(columns)
        return self._interpolate(column)

    def describe(self) -> str:
        """Where the points come from and the box that they span."""
        box = "; ".join(
            f"{axis} {grid[0]:g} to {grid[-1]:g} ({len(grid)})" for axis, grid in zip(AXES, self._grid, strict=True)
        )
        clamped = f"; {self.clamped_steps} steps outside took the nearest point" if self.clamped_steps else ""
        return f"{self.name}: {box}{clamped}"

    def _interpolate(self, column: Mapping[str, FloatArray]) -> FloatArray:
        rows = len(column[AXES[0]])
        outside = np.zeros(rows, dtype=bool)
        lower, share = [], []
        for axis, grid in zip(AXES, self._grid, strict=True):
            value = column[axis]
            if len(grid) == 1:
                lower.append(np.zeros(rows, dtype=np.int64))
                share.append(np.zeros(rows))
                continue
            beyond = (value < grid[0]) | (value > grid[-1])
            if beyond.any() and not self.clamp:
                raise MeasurementError(
                    f"{self.name}: a step with {axis} {value[beyond][0]:g} lies outside the measured"
                    f" {grid[0]:g} to {grid[-1]:g}; measure there, or set extrapolate: clamp"
                )
            outside |= beyond
            value = np.clip(value, grid[0], grid[-1])
            index = np.clip(np.searchsorted(grid, value, side="right") - 1, 0, len(grid) - 2)
            lower.append(index)
            share.append((value - grid[index]) / (grid[index + 1] - grid[index]))
        self.clamped_steps += int(outside.sum())
        result = np.zeros(rows)
        for corner in itertools.product((0, 1), repeat=len(AXES)):
            weight = np.ones(rows)
            for side, part in zip(corner, share, strict=True):
                weight = weight * (part if side else 1.0 - part)
            at = tuple(
                np.minimum(index + side, len(grid) - 1)
                for index, side, grid in zip(lower, corner, self._grid, strict=True)
            )
            result = result + weight * self._seconds[at]
        return result
