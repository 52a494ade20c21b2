"""Writes the tables of a run column-wise, in row groups, so that memory stays bounded.

While a run goes on, a table is ``<name>.parquet.partial``; it gets its name when it is whole.  A run
that stops with an error leaves ``<name>.partial.parquet``: every row group up to there, readable.
One that is killed leaves ``.parquet.partial`` files, which nothing takes for a table.

Row groups are cut at a fixed number of rows, however the rows came, and hold no time of writing, so
equal rows give equal bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.recording.schema import TABLES, Column, Kind
from sim.recording.tally import Tally

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP_ROWS = 262144
BUFFERED_ROWS = 2048
_PENDING_GROUPS = 4

Values = Any  # a numpy array, or a sequence with None where a column may be null


class Recorder:
    """The tables of one run, open for appending; a context manager.

    >>> with Recorder(folder, ["steps"]) as recorder:  # doctest: +SKIP
    ...     recorder.append("steps", {"step": np.arange(3), ...})

    Args:
        folder: an existing folder.
        tables: names of the tables to write; rows of others are counted and dropped.
        row_group_rows: rows of a row group (tests make it small).
        tally: sees every chunk of rows, of tables that are not written too.

    A failed write (a full disk) is raised as `OSError` at the next `append` or at `close`.
    """

    def __init__(
        self,
        folder: Path,
        tables: Iterable[str],
        *,
        row_group_rows: int = ROW_GROUP_ROWS,
        tally: Tally | None = None,
    ) -> None:
        self.folder = Path(folder)
        self._tally = tally
        self.rows = dict.fromkeys(TABLES, 0)
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kvsim-writer")
        self._writers = {
            name: TableWriter(self.folder, name, TABLES[name], row_group_rows, self._pool) for name in tables
        }
        self._buffers: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLES}
        self._widths = {name: len(columns) for name, columns in TABLES.items()}
        self.closed = False

    def wants(self, table: str) -> bool:
        """Whether rows of this table are written; who makes rows may save the work otherwise."""
        return table in self._writers

    def append(self, table: str, columns: Mapping[str, Values]) -> None:
        """Append rows, given as one array or list of equal length per column of the schema.

        The arrays are kept until their row group is written: don't change them afterwards.

        Raises `ValueError` for a missing, unknown or ragged column.
        """
        schema = TABLES[table]
        names = [column.name for column in schema]
        if columns.keys() != set(names):
            missing = sorted(set(names) - columns.keys())
            unknown = sorted(columns.keys() - set(names))
            raise ValueError(f"table {table}: columns missing {missing}, unknown {unknown}")
        lengths = {len(columns[name]) for name in names}
        if len(lengths) != 1:
            shown = {name: len(columns[name]) for name in names}
            raise ValueError(f"table {table}: columns of unequal length {shown}")
        self._flush_buffer(table)
        self._append(table, [columns[name] for name in names], lengths.pop())

    def append_later(self, table: str, count: int, make: Callable[[], Mapping[str, Values]]) -> None:
        """Append `count` rows whose columns are made when they are written, in the writing thread.

        `make` must touch nothing that changes afterwards.  For tables of which no summary is kept.
        """
        self._flush_buffer(table)
        self.rows[table] += count
        if self._tally is not None:
            self._tally.rows[table] += count
        if table in self._writers and count:
            names = [column.name for column in TABLES[table]]
            self._writers[table].append(_Later(lambda: [made[name] for made in [make()] for name in names]), count)

    def row(self, table: str, values: tuple[Any, ...]) -> None:
        """Append one row, given as a tuple in the order of the schema.  Cheap: rows are turned over in bulk.

        Raises `ValueError` for a row of another length.
        """
        self.add_rows(table, [values])

    def add_rows(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        """Append rows, each as for `row`."""
        width = self._widths[table]
        for values in rows:
            if len(values) != width:
                raise ValueError(f"table {table}: a row of {len(values)} values, the schema has {width}")
        buffer = self._buffers[table]
        buffer += rows
        if len(buffer) >= BUFFERED_ROWS:
            self._flush_buffer(table)

    def close(self, *, complete: bool = True) -> None:
        """Write what is left and close all tables; with `complete` they get their final names.  Idempotent."""
        if self.closed:
            return
        self.closed = True
        try:
            for table in TABLES:
                self._flush_buffer(table)
            for writer in self._writers.values():
                writer.close(complete=complete)
        finally:
            self._pool.shutdown(wait=True)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(complete=kind is None)

    def _append(self, table: str, columns: list[Values], count: int) -> None:
        self.rows[table] += count
        if self._tally is not None and count:
            names = (column.name for column in TABLES[table])
            self._tally.observe(table, dict(zip(names, columns, strict=True)), count)
        if table in self._writers and count:
            self._writers[table].append(columns, count)

    def _flush_buffer(self, table: str) -> None:
        buffer = self._buffers[table]
        if buffer:
            self._buffers[table] = []
            columns = zip(TABLES[table], zip(*buffer, strict=True), strict=True)
            # numbers become arrays once, for the tally and the file
            self._append(
                table,
                [
                    values if c.nullable or c.kind == "string" else np.array(values, dtype=c.kind)
                    for c, values in columns
                ],
                len(buffer),
            )


class _Later:
    """Columns that are made when they are first asked for, and forgotten with the last row."""

    def __init__(self, make: Callable[[], list[Values]]) -> None:
        self._make: Callable[[], list[Values]] | None = make
        self._columns: list[Values] = []

    def columns(self) -> list[Values]:
        """The columns."""
        if self._make is not None:
            self._columns, self._make = self._make(), None
        return self._columns


class TableWriter:
    """One Parquet file in the making."""

    def __init__(
        self, folder: Path, name: str, columns: Sequence[Column], row_group_rows: int, pool: ThreadPoolExecutor
    ) -> None:
        import pyarrow.parquet as pq

        self.name = name
        self.columns = columns
        self.final = folder / f"{name}.parquet"
        self.partial = folder / f"{name}.parquet.partial"
        self.salvaged = folder / f"{name}.partial.parquet"
        self._row_group_rows = row_group_rows
        self._schema = arrow_schema(columns)
        self._chunks: list[_Chunk] = []
        self._buffered = 0
        self._pool = pool
        self._pending: deque[Future[None]] = deque()
        self._writer = pq.ParquetWriter(
            self.partial,
            self._schema,
            compression="snappy",
            use_dictionary=[column.name for column in columns if column.kind == "string"],
            column_encoding={
                c.name: "PLAIN" if c.repeats else _ENCODINGS[c.kind] for c in columns if c.kind in _ENCODINGS
            },
            write_statistics=False,
        )

    def append(self, columns: list[Values] | _Later, count: int) -> None:
        """Buffer rows and hand every full row group to the writing thread."""
        start = 0
        while count - start >= self._row_group_rows - self._buffered:
            end = start + self._row_group_rows - self._buffered
            self._chunks.append((columns, start, end))
            self._buffered = self._row_group_rows
            self._submit()
            start = end
        if start < count:
            self._chunks.append((columns, start, count))
            self._buffered += count - start

    def close(self, *, complete: bool) -> None:
        """Write the last row group and the footer, then give the file its final name (or the name of a partial one)."""
        failed = True
        try:
            if self._buffered:
                self._submit()
            while self._pending:
                self._pending.popleft().result()
            failed = False
        finally:
            self._writer.close()
            self.partial.replace(self.final if complete and not failed else self.salvaged)

    def _submit(self) -> None:
        chunks, self._chunks, self._buffered = self._chunks, [], 0
        while len(self._pending) >= _PENDING_GROUPS or (self._pending and self._pending[0].done()):
            self._pending.popleft().result()
        self._pending.append(self._pool.submit(self._write, chunks))

    def _write(self, chunks: list[_Chunk]) -> None:
        import pyarrow as pa

        parts = [
            [values[start:end] for values in (source.columns() if isinstance(source, _Later) else source)]
            for source, start, end in chunks
        ]
        arrays = [
            _arrow_array([part[index] for part in parts], column, self._schema.field(index).type)
            for index, column in enumerate(self.columns)
        ]
        table = pa.Table.from_arrays(arrays, schema=self._schema)
        self._writer.write_table(table, row_group_size=max(len(table), 1))


# rows start … end - 1 of some columns
_Chunk = tuple[list[Values] | _Later, int, int]
_ENCODINGS: dict[Kind, str] = {"int64": "DELTA_BINARY_PACKED", "float64": "BYTE_STREAM_SPLIT", "uint64": "PLAIN"}


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """The Parquet schema, with unit and meaning of each column in its metadata."""
    import pyarrow as pa

    kinds = {"int64": pa.int64(), "uint64": pa.uint64(), "float64": pa.float64(), "string": pa.string()}
    return pa.schema(
        [
            pa.field(c.name, kinds[c.kind], nullable=c.nullable, metadata={"unit": c.unit, "meaning": c.meaning})
            for c in columns
        ]
    )


def _arrow_array(parts: list[Values], column: Column, kind: pa.DataType) -> pa.Array:
    """The parts of one column joined.  None, and NaN in a column that may be null, is a null.

    Built from buffers: `pyarrow.array` would import pandas first, which takes as long as a small run.
    """
    import pyarrow as pa

    if column.kind == "string":
        texts: list[str | None] = [value for part in parts for value in part]
        data = [b"" if text is None else str(text).encode() for text in texts]
        ends = np.cumsum([0, *map(len, data)]).astype(np.int32)
        buffers = [_validity(np.array([text is not None for text in texts], dtype=bool)), ends, b"".join(data)]
        count = len(texts)
    elif column.nullable and column.kind != "float64":
        values = [value for part in parts for value in (part.tolist() if isinstance(part, np.ndarray) else part)]
        known = np.array([value is not None and value == value for value in values], dtype=bool)
        flat = np.array([value if there else 0 for value, there in zip(values, known, strict=True)], dtype=column.kind)
        buffers, count = [_validity(known), flat], len(flat)
    else:
        numbers = [np.asarray(part, dtype=column.kind) for part in parts]
        flat = numbers[0] if len(numbers) == 1 else np.concatenate(numbers)
        buffers, count = [_validity(~np.isnan(flat)) if column.nullable else None, flat], len(flat)
    return pa.Array.from_buffers(kind, count, [None if b is None else pa.py_buffer(b) for b in buffers])


def _validity(known: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Arrow's bitmap of the values that are there; None when all are."""
    return None if known.all() else np.packbits(known, bitorder="little")
