"""Keeps, while a run goes on, the few columns that the summary needs, whether or not the tables are written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.recording.schema import REQUESTS, STEPS

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

FINISHED, ABORTED, REJECTED, CANCELLED = STATUSES = ("finished", "aborted", "rejected", "cancelled")

_KINDS = {column.name: column.kind for column in (*REQUESTS, *STEPS)}
_REQUEST_NUMBERS = (
    "request_index",
    "arrival_s",
    "first_scheduled_s",
    "first_token_s",
    "finish_s",
    "prompt_tokens",
    "output_tokens",
    "cached_tokens",
    "recomputed_tokens",
    "preemptions",
    "phantom_hit_tokens",
)
_STEP_ROWS = (
    "start_s",
    "duration_s",
    "decode_requests",
    "query_tokens",
    "hit_tokens",
    "preempted_query_tokens",
    "preempted_hit_tokens",
    "running_requests",
    "waiting_requests",
    "kv_usage",
)
_STEP_SUMS = ("prefill_tokens", "decode_requests", "encoder_tokens", "preemptions", "evicted_blocks")


class Tally:
    """Figures of a run in the making: `observe` is called with every chunk of rows."""

    def __init__(self) -> None:
        self._requests = {name: _Values(_KINDS[name]) for name in _REQUEST_NUMBERS}
        self._status = _Values("int64")
        self._steps = {name: _Values(_KINDS[name]) for name in _STEP_ROWS}
        self._stalls = {"step": _Values("int64"), "gap_s": _Values("float64")}
        self.step_sums = dict.fromkeys(_STEP_SUMS, 0)
        self.reasons: Counter[tuple[str, str]] = Counter()
        self.rows: Counter[str] = Counter()

    def observe(self, table: str, columns: Mapping[str, Any], count: int) -> None:
        """Take in `count` rows of a table, one array or list per column."""
        self.rows[table] += count
        if table == "requests":
            for name, values in self._requests.items():
                values.add(columns[name])
            statuses = list(columns["status"])
            self._status.add(np.array([STATUSES.index(status) for status in statuses], dtype=np.int64))
            self.reasons.update(
                (status, reason)
                for status, reason in zip(statuses, columns["reason"], strict=True)
                if status != FINISHED and reason
            )
        elif table == "steps":
            for name, values in self._steps.items():
                values.add(columns[name])
            for name in _STEP_SUMS:
                self.step_sums[name] += int(np.sum(columns[name]))
        elif table == "stalls":
            for name, values in self._stalls.items():
                values.add(columns[name])

    def requests(self) -> Requests:
        """All requests that ended, in order of arrival."""
        columns = {name: values.array() for name, values in self._requests.items()}
        order = np.argsort(columns["request_index"], kind="stable")
        return Requests({name: values[order] for name, values in columns.items()}, self._status.array()[order])

    def steps(self) -> dict[str, npt.NDArray[Any]]:
        """The kept columns of all steps."""
        return {name: values.array() for name, values in self._steps.items()}

    def stalls(self) -> dict[str, npt.NDArray[Any]]:
        """Late tokens: the step and the gap."""
        return {name: values.array() for name, values in self._stalls.items()}


class Requests:
    """Columns of requests as arrays of one length, and their status as an index into `STATUSES`."""

    def __init__(self, columns: Mapping[str, npt.NDArray[Any]], status: IntArray) -> None:
        self.columns = columns
        self.status = status

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.status)

    def where(self, mask: npt.NDArray[np.bool_]) -> Requests:
        """The requests for which the mask is true."""
        return Requests({name: values[mask] for name, values in self.columns.items()}, self.status[mask])

    def having(self, status: str) -> Requests:
        """The requests that ended so."""
        return self.where(self.status == STATUSES.index(status))


class _Values:
    """Numbers that are appended in chunks and read as one array; None becomes NaN."""

    def __init__(self, kind: str) -> None:
        self._dtype = np.dtype(kind)
        self._chunks: list[npt.NDArray[Any]] = []

    def add(self, values: Any) -> None:
        self._chunks.append(np.array(values, dtype=self._dtype))
        if len(self._chunks) >= 256:
            self._chunks = [np.concatenate(self._chunks)]

    def array(self) -> npt.NDArray[Any]:
        if len(self._chunks) != 1:
            self._chunks = [np.concatenate(self._chunks)] if self._chunks else [np.empty(0, dtype=self._dtype)]
        return self._chunks[0]
