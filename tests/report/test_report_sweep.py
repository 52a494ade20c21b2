"""What a sweep's report reads out of its points."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from sim.errors import ResultsError
from sim.report.figures import sweep as figures
from sim.report.picture import NothingToShow
from sim.report.plots import SweepPlots
from sim.report.sweep_data import (
    SweepPoints,
    as_number,
    best_point,
    ordered,
    pareto,
    parse_constraint,
    smallest_budget,
)


def small(**changes: list[object]) -> pd.DataFrame:
    columns: dict[str, list[object]] = {
        "engine.block_size": [16, 16, 32, 32],
        "memory.kv_cache_memory": ["1GiB", "4GiB", "1GiB", "4GiB"],
        "seed": [0, 0, 0, 0],
        "hit_rate.tokens": [0.2, 0.5, 0.1, 0.46],
        "evictions": [100, 10, 80, 5],
        "latency.vllm:time_to_first_token_seconds.p99": [4.0, 1.0, 4.5, 0.9],
    }
    return pd.DataFrame({**columns, **changes})


@pytest.mark.parametrize(
    ("value", "number"), [("4GiB", 4 * 2**30), ("1.5 MiB", 1.5 * 2**20), ("2GB", 2e9), (7, 7.0), ("300", 300.0)]
)
def test_sizes_are_numbers(value: object, number: float):
    assert as_number(value) == number


def test_words_are_no_numbers():
    assert np.isnan(as_number("lru"))
    assert np.isnan(as_number(True))


def test_parameters_are_the_paths_that_vary():
    sweep = SweepPoints.from_table(small())
    assert sweep.parameters == ("engine.block_size", "memory.kv_cache_memory")
    assert sweep.budget == "memory.kv_cache_memory"
    assert set(sweep.metrics) == {"hit_rate", "evictions", "ttft_p99"}


def test_a_named_parameter_must_be_there():
    with pytest.raises(ResultsError, match=r"no column engine\.color"):
        SweepPoints.from_table(small(), ["engine.color"])


def test_failed_points_are_left_out():
    sweep = SweepPoints.from_table(small(status=["finished", "failed", "finished", "finished"]))
    assert len(sweep.points) == 3


def test_best_point_meets_its_constraints():
    sweep = SweepPoints.from_table(small())
    columns = list(sweep.points.columns)
    free = best_point(sweep, "hit_rate.tokens", "high")
    assert free.row == 1
    limit = parse_constraint("evictions<=5", columns)
    assert best_point(sweep, "hit_rate.tokens", "high", [limit]).row == 3
    none = best_point(sweep, "hit_rate.tokens", "high", [parse_constraint("evictions <= 1", columns)])
    assert none.row is None
    assert "No point has evictions <= 1" in none.words


def test_equal_points_go_to_the_smaller_memory():
    sweep = SweepPoints.from_table(small(**{"hit_rate.tokens": [0.3, 0.5, 0.5, 0.5]}))
    assert best_point(sweep, "hit_rate.tokens", "high").row == 2


def test_points_are_judged_by_their_mean_over_seeds():
    lucky = small(seed=[1] * 4, **{"hit_rate.tokens": [0.2, 0.3, 0.9, 0.46]})
    sweep = SweepPoints.from_table(pd.concat([small(), lucky]))
    assert len(sweep.means.points) == 4
    choice = best_point(sweep, "hit_rate.tokens", "high")
    assert sweep.means.points["hit_rate.tokens"].tolist() == pytest.approx([0.2, 0.4, 0.5, 0.46])
    assert choice.row == 2
    assert "means over 2 seeds" in choice.words


def test_one_seed_has_no_means():
    sweep = SweepPoints.from_table(small())
    assert sweep.means is sweep


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("evictions<5", "COLUMN<=NUMBER"),
        ("eviction<=5", "did you mean evictions"),
        ("evictions<=few", "is no number"),
    ],
)
def test_a_wrong_constraint_says_what_is_right(text: str, message: str):
    with pytest.raises(ResultsError, match=message):
        parse_constraint(text, list(small().columns))


def test_smallest_budget_keeps_its_share_of_the_best():
    sweep = SweepPoints.from_table(small())
    choice = smallest_budget(sweep, 0.9)
    assert choice is not None
    assert choice.row == 1
    generous = smallest_budget(sweep, 0.4)
    assert generous is not None
    assert generous.row == 0


def test_there_is_no_smallest_of_one_budget():
    sweep = SweepPoints.from_table(small(**{"memory.kv_cache_memory": ["1GiB"] * 4}))
    assert smallest_budget(sweep) is None


points = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=20)


@given(points)
def test_no_point_beats_the_front_and_every_other_is_beaten(pairs: list[tuple[int, int]]):
    cost, gain = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    front = set(pareto(cost, gain).tolist())
    for i in range(len(pairs)):
        others = [j for j in range(len(pairs)) if cost[j] <= cost[i] and gain[j] >= gain[i]]
        better = [j for j in others if cost[j] < cost[i] or gain[j] > gain[i]]
        if i in front:
            assert not better
        else:
            assert set(others) & front


def test_heat_map_means_over_the_rest_and_leaves_holes():
    table = small().iloc[[0, 1, 2]]
    data = figures.compute_heat(SweepPoints.from_table(table))
    assert (data.across, data.up) == ("memory.kv_cache_memory", "engine.block_size")
    assert data.x == ["1GiB", "4GiB"]
    assert data.cells[0].tolist() == [0.2, 0.5]
    assert np.isnan(data.cells[1, 1])


def test_bands_span_the_seeds():
    table = pd.concat([small(), small(seed=[1] * 4, **{"hit_rate.tokens": [0.4, 0.7, 0.3, 0.5]})])
    data = figures.compute_lines(SweepPoints.from_table(table))
    assert data.low[0].tolist() == [0.2, 0.5]
    assert data.high[0].tolist() == [0.4, 0.7]
    assert data.mean[0].tolist() == pytest.approx([0.3, 0.6])
    assert "2 seeds" in figures.read_lines(data)


def test_one_parameter_makes_lines_but_no_heat_map():
    sweep = SweepPoints.from_table(small().iloc[:2])
    with pytest.raises(NothingToShow):
        figures.compute_heat(sweep)
    assert figures.compute_lines(sweep).labels == [""]


def test_values_are_in_order_of_size():
    assert ordered(pd.Series(["16GiB", "2GiB", "512MiB"])) == ["512MiB", "2GiB", "16GiB"]
    assert ordered(pd.Series(["lru", "fifo", "lru"])) == ["lru", "fifo"]


@pytest.mark.parametrize("name", ["heat_map", "lines", "hit_rate_against_memory"])
def test_plots_of_a_sweep(name: str):
    ax = Figure().add_subplot()
    assert getattr(SweepPlots(small()), name)(ax=ax) is ax
    assert ax.has_data()


def test_plots_of_no_points_are_a_remark():
    ax = SweepPlots(small().iloc[:0]).lines()
    assert len(ax.texts) == 1


def test_points_without_a_value_in_any_cell():
    sweep = SweepPoints.from_table(small(**{"hit_rate.tokens": [np.nan] * 4}))
    for compute in (figures.compute_heat, figures.compute_lines, figures.compute_front):
        with pytest.raises(NothingToShow):
            compute(sweep)


def test_sweep_page_names_the_answer(sweep_folder: Path, tmp_path: Path):
    from sim.report.build import write_report

    text = write_report(sweep_folder, tmp_path / "r.html").read_text(encoding="utf-8").replace("\u00a0", " ")
    assert "Smallest budget that keeps 90 % of the best hit rate" in text
    assert "The same in all points" in text
    assert (tmp_path / "figures" / "heat_hit_rate.png").exists()
    assert sys.getsizeof(text) < 6_000_000
