"""Measured points: reading them, interpolating between them, fitting coefficients to them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from sim.cli.fit import command as fit_command
from sim.timing.base import Batch
from sim.timing.catalog import find_gpu, find_model
from sim.timing.config import Efficiencies
from sim.timing.fitting import fit_linear, fit_roofline
from sim.timing.linear import LinearStepTime
from sim.timing.points import AXES, MeasuredPoints, MeasurementError, read_points
from sim.timing.roofline import RooflineStepTime
from sim.timing.table import TableStepTime

GRID = "prefill_tokens,decode_requests,cached_tokens,seconds\n" + "".join(
    f"{p},{d},{c},{0.01 + p * 1e-4 + d * 1e-3 + c * 1e-6}\n"
    for p in (0, 512, 2048)
    for d in (0, 8, 64)
    for c in (0, 9000)
)


def written(tmp_path: Path, text: str, name: str = "points.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["points.csv", "points.csv.gz"])
def test_points_are_read_and_completed(tmp_path: Path, name: str) -> None:
    points = read_points(written(tmp_path, GRID, name))
    assert len(points.seconds) == 18
    assert set(AXES) <= set(points.columns)
    assert set(points.columns["prefill_requests"]) == {0.0, 1.0}
    first = points.columns["prefill_tokens"] == 512
    assert points.columns["attention_pairs"][first][0] == 512 * 513 / 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("decode_requests,seconds\n", "no measurement below"),
        ("decode_requests\n1\n", "needs the column seconds"),
        ("seconds\n1\n", "at least one of"),
        ("decodes,seconds\n1,1\n", ":1: unknown column 'decodes'"),
        ("seconds,decode_requests,decode_requests\n1,1,1\n", ":1: a column stands twice"),
        ("decode_requests,seconds\n1,0.1\n2\n", ":3: 1 fields, but the header has 2"),
        ("decode_requests,seconds\n1,fast\n", ":2: seconds is 'fast', not a number"),
        ("decode_requests,seconds\n1,0\n", ":2: seconds is 0; it must be finite and above 0"),
        ("decode_requests,seconds\n-1,1\n", ":2: decode_requests is -1"),
        ("decode_requests,seconds\n1,nan\n", "finite"),
    ],
)
def test_odd_files_are_named_with_the_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(MeasurementError, match=words):
        read_points(written(tmp_path, text))


def test_a_missing_or_damaged_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="No such file"):
        read_points(tmp_path / "none.csv")
    (tmp_path / "bad.csv.gz").write_bytes(b"not gzip")
    with pytest.raises(MeasurementError, match="bad"):
        read_points(tmp_path / "bad.csv.gz")


@given(p=st.integers(0, 2048), d=st.integers(0, 64), c=st.integers(0, 9000))
def test_a_table_is_exact_at_its_points_and_linear_between(
    p: int, d: int, c: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    table = TableStepTime(read_points(written(tmp_path_factory.mktemp("t"), GRID)))
    batch = Batch(prefill_tokens=p, decode_requests=d, context_tokens=c)
    assert table.seconds(batch) == pytest.approx(0.01 + p * 1e-4 + d * 1e-3 + c * 1e-6, rel=1e-9)
    columns = {name: np.array([getattr(batch, name)]) for name in Batch._fields}
    assert table.seconds_many(columns)[0] == table.seconds(batch)


def test_a_table_refuses_to_extrapolate_unless_told_to_and_then_counts(tmp_path: Path) -> None:
    points = read_points(written(tmp_path, GRID))
    outside, edge = Batch(decode_requests=65), Batch(decode_requests=64)
    with pytest.raises(MeasurementError, match="decode_requests 65 lies outside the measured 0 to 64"):
        TableStepTime(points).seconds(outside)
    clamped = TableStepTime(points, clamp=True)
    assert clamped.seconds(outside) == clamped.seconds(edge)
    assert clamped.clamped_steps == 1
    assert "1 steps outside" in clamped.describe()


def test_repeated_points_count_with_their_mean_and_holes_are_named(tmp_path: Path) -> None:
    twice = read_points(written(tmp_path, "decode_requests,seconds\n1,0.1\n1,0.3\n2,0.5\n"))
    assert TableStepTime(twice).seconds(Batch(decode_requests=1)) == pytest.approx(0.2)
    holes = read_points(written(tmp_path, "decode_requests,cached_tokens,seconds\n1,10,0.1\n2,20,0.3\n"))
    with pytest.raises(
        MeasurementError, match="2 of 4 points are missing, the first at decode_requests 1, context_tokens 20"
    ):
        TableStepTime(holes)


def made(model: LinearStepTime | RooflineStepTime) -> MeasuredPoints:
    grid = [(p, d, c) for p in (0, 256, 4096) for d in (0, 1, 32, 128) for c in (0, 20_000, 300_000) if p or d]
    columns = {name: np.array([row[i] for row in grid], dtype=float) for i, name in enumerate(AXES)}
    columns["prefill_requests"] = np.minimum(columns["prefill_tokens"], 1)
    columns["attention_pairs"] = columns["prefill_tokens"] * (columns["prefill_tokens"] + 1) / 2
    return MeasuredPoints(columns, model.seconds_many(columns))


def test_a_linear_fit_finds_what_made_the_points() -> None:
    truth = {"step_s": 0.004, "prefill_token_s": 3e-5, "decode_request_s": 4e-5, "context_kilotoken_s": 2e-5}
    found = fit_linear(made(LinearStepTime(**truth)))
    assert found.coefficients == pytest.approx(truth, rel=1e-6)
    assert found.error_summary()["max_abs_error"] < 1e-9


def test_no_coefficient_of_a_linear_fit_is_negative() -> None:
    columns = {name: np.zeros(3) for name in AXES} | {"decode_requests": np.array([1.0, 2.0, 3.0])}
    found = fit_linear(MeasuredPoints(columns, np.array([0.3, 0.2, 0.1])))
    assert min(found.coefficients.values()) == 0
    assert found.coefficients["step_s"] > 0


def test_a_roofline_fit_finds_what_made_the_points() -> None:
    truth = Efficiencies(weight_bandwidth=0.6, kv_bandwidth=0.5, compute=0.4, request_s=60e-6)
    model, gpu = find_model("qwen3-8b"), find_gpu("l40s")
    found = fit_roofline(made(RooflineStepTime(model, gpu, efficiencies=truth)), model, gpu)
    assert found.error_summary()["max_abs_error"] < 0.03
    assert found.coefficients["compute"] == pytest.approx(0.4, rel=0.05)
    assert found.coefficients["kv_bandwidth"] == pytest.approx(0.5, rel=0.05)


def test_one_point_is_too_few() -> None:
    one = MeasuredPoints({name: np.zeros(1) for name in AXES}, np.ones(1))
    with pytest.raises(MeasurementError, match="at least two"):
        fit_linear(one)
    with pytest.raises(MeasurementError, match="at least two"):
        fit_roofline(one, find_model("phi-4"), find_gpu("l4"))


def test_the_command_prints_a_timing_block_and_its_error(tmp_path: Path) -> None:
    path = str(written(tmp_path, GRID))
    text = CliRunner().invoke(fit_command, [path], catch_exceptions=False).output
    assert "kind: linear" in text
    assert "# 18 points; absolute error" in text
    figures = json.loads(CliRunner().invoke(fit_command, [path, "--json"], catch_exceptions=False).output)
    assert figures["coefficients"]["decode_request_s"] == pytest.approx(1e-3)
    options = ["--kind", "roofline", "--model", "phi-4", "--gpu", "l4"]
    text = CliRunner().invoke(fit_command, [path, *options, "--dtype", "fp8"], catch_exceptions=False).output
    assert "  dtype: fp8" in text
    assert "    compute: " in text
    result = CliRunner().invoke(fit_command, [path, "--kind", "roofline"])
    assert result.exit_code == 2
    assert "needs --model and --gpu" in result.output
