"""Columns that grow: numpy arrays for numbers of which nobody knows how many will come."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class Growing:
    """An array that is appended to in chunks; its memory doubles.

    Args:
        dtype: of the numbers.
    """

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._data: npt.NDArray[Any] = np.zeros(1024, dtype=dtype)
        self.size = 0

    def extend(self, values: npt.ArrayLike, count: int) -> None:
        """Append `count` numbers, or one number `count` times."""
        end = self.size + count
        self._data = grown(self._data, end)
        self._data[self.size : end] = values
        self.size = end

    def append(self, value: float) -> None:
        """Append one number."""
        self.extend(value, 1)

    @property
    def values(self) -> npt.NDArray[Any]:
        """The numbers, a view that the next append may leave behind."""
        return self._data[: self.size]


def grown(array: npt.NDArray[Any], size: int, fill: int = 0) -> npt.NDArray[Any]:
    """The array itself if it holds `size` numbers, otherwise a longer one with `fill` behind them."""
    if size <= len(array):
        return array
    longer = np.full(max(size, 2 * len(array)), fill, dtype=array.dtype) if fill else _zeros(array, size)
    longer[: len(array)] = array
    return longer


def _zeros(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    return np.zeros(max(size, 2 * len(array)), dtype=array.dtype)
