"""Tables are written in row groups, whole or not at all, and the same rows give the same bytes."""

import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from sim.recording.recorder import Recorder
from sim.recording.schema import MEANINGS, TABLES
from sim.recording.tally import Tally

STALLS = {"step": np.arange(10), "request_index": np.arange(10) * 2, "gap_s": np.arange(10) / 8}


def rows(file):
    return pq.read_table(file).to_pylist()


def test_row_groups_are_cut_at_a_fixed_size_however_rows_come(tmp_path):
    whole, pieces, single = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    for folder in (whole, pieces, single):
        folder.mkdir()
    with Recorder(whole, ["stalls"], row_group_rows=4) as recorder:
        recorder.append("stalls", STALLS)
    with Recorder(pieces, ["stalls"], row_group_rows=4) as recorder:
        for start, end in ((0, 1), (1, 7), (7, 7), (7, 10)):
            recorder.append("stalls", {name: values[start:end] for name, values in STALLS.items()})
    with Recorder(single, ["stalls"], row_group_rows=4) as recorder:
        for row in zip(*(values.tolist() for values in STALLS.values()), strict=True):
            recorder.row("stalls", row)
    file = pq.ParquetFile(whole / "stalls.parquet")
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [4, 4, 2]
    data = (whole / "stalls.parquet").read_bytes()
    assert (pieces / "stalls.parquet").read_bytes() == data
    assert (single / "stalls.parquet").read_bytes() == data
    assert [row["gap_s"] for row in rows(whole / "stalls.parquet")] == STALLS["gap_s"].tolist()


def test_rows_and_columns_keep_their_order(tmp_path):
    with Recorder(tmp_path, ["stalls"]) as recorder:
        recorder.row("stalls", (0, 0, 0.5))
        recorder.append("stalls", {"step": [1], "request_index": [1], "gap_s": [1.5]})
        recorder.row("stalls", (2, 2, 2.5))
    assert [row["step"] for row in rows(tmp_path / "stalls.parquet")] == [0, 1, 2]


def test_empty_tables_have_their_schema(tmp_path):
    with Recorder(tmp_path, list(TABLES)):
        pass
    for name, columns in TABLES.items():
        schema = pq.read_schema(tmp_path / f"{name}.parquet")
        assert schema.names == [column.name for column in columns]
        for column in columns:
            metadata = schema.field(column.name).metadata
            assert metadata[b"meaning"].decode() == column.meaning
            assert metadata[b"unit"].decode() == column.unit
            assert schema.field(column.name).nullable == column.nullable


def test_every_column_says_its_unit():
    for name, columns in TABLES.items():
        assert MEANINGS[name]
        for column in columns:
            assert column.meaning
            if column.kind == "float64":
                assert column.unit in ("s", "share")
            for ending, unit in (("_s", "s"), ("_tokens", "tokens"), ("_blocks", "blocks")):
                if column.name.endswith(ending):
                    assert column.unit == unit, column.name


def test_nulls(tmp_path):
    row = (0, "a", "", None, 0, None, None, float("nan"), 2.0, *([1] * 5), "finished", None, 0, None, None, 0, 0, "")
    with Recorder(tmp_path, ["requests"]) as recorder:
        recorder.row("requests", row)
    found = rows(tmp_path / "requests.parquet")[0]
    assert found["arrival_s"] is None
    assert found["first_scheduled_s"] is None
    assert found["first_token_s"] is None
    assert found["session"] is None
    assert found["category"] == ""


def test_tables_that_are_not_wanted_are_counted_and_tallied(tmp_path):
    tally = Tally()
    with Recorder(tmp_path, ["steps"], tally=tally) as recorder:
        assert recorder.wants("steps")
        assert not recorder.wants("stalls")
        recorder.append("stalls", STALLS)
    assert recorder.rows["stalls"] == 10
    assert tally.rows["stalls"] == 10
    assert tally.stalls()["gap_s"].tolist() == STALLS["gap_s"].tolist()
    assert not (tmp_path / "stalls.parquet").exists()


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"step": [1], "gap_s": [1.0]}, "missing \\['request_index'\\]"),
        ({"step": [1], "request_index": [1], "gap_s": [1.0], "x": [1]}, "unknown \\['x'\\]"),
        ({"step": [1, 2], "request_index": [1], "gap_s": [1.0]}, "unequal length"),
    ],
)
def test_wrong_columns(tmp_path, columns, said):
    with Recorder(tmp_path, ["stalls"]) as recorder, pytest.raises(ValueError, match=said):
        recorder.append("stalls", columns)


def test_a_row_of_the_wrong_length(tmp_path):
    with Recorder(tmp_path, ["stalls"]) as recorder, pytest.raises(ValueError, match="a row of 2 values"):
        recorder.row("stalls", (1, 2))


def test_while_it_is_written_nothing_looks_whole(tmp_path):
    recorder = Recorder(tmp_path, ["stalls"], row_group_rows=4)
    recorder.append("stalls", STALLS)
    assert [file.name for file in tmp_path.iterdir()] == ["stalls.parquet.partial"]
    recorder.close()
    recorder.close()
    assert [file.name for file in tmp_path.iterdir()] == ["stalls.parquet"]


def test_after_an_error_what_was_written_can_be_read(tmp_path):
    with pytest.raises(RuntimeError), Recorder(tmp_path, ["stalls"], row_group_rows=4) as recorder:  # noqa: PT012
        recorder.append("stalls", STALLS)
        raise RuntimeError
    assert [file.name for file in tmp_path.iterdir()] == ["stalls.partial.parquet"]
    assert len(rows(tmp_path / "stalls.partial.parquet")) == 10


def test_a_killed_writer_leaves_no_table(tmp_path):
    code = (
        "import os, sys, numpy as np\n"
        "from sim.recording.recorder import Recorder\n"
        f"r = Recorder({str(tmp_path)!r}, ['stalls'], row_group_rows=100)\n"
        "n = np.arange(1000)\n"
        "r.append('stalls', {'step': n, 'request_index': n, 'gap_s': n / 2})\n"
        "os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert [file.name for file in tmp_path.iterdir()] == ["stalls.parquet.partial"]


def test_a_failed_write_is_raised(tmp_path):
    recorder = Recorder(tmp_path, ["stalls"], row_group_rows=2)
    recorder.append("stalls", {"step": ["x", "y"], "request_index": [0, 0], "gap_s": [0.0, 0.0]})
    with pytest.raises(ValueError, match="invalid literal"):
        recorder.close()
    assert not (tmp_path / "stalls.parquet").exists()
