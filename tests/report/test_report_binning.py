"""The reductions under the figures, against plain loops and known answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.report.binning import (
    extremes_per_bin,
    log_edges,
    ratio,
    sum_per_bin,
    time_average,
    time_axis,
    time_unit,
)


def test_time_axis_covers_the_span_in_equal_bins():
    axis = time_axis(12.0, bins=4)
    assert axis.edges_s.tolist() == [0, 3, 6, 9, 12]
    assert axis.width_s == 3
    assert axis.centers.tolist() == [1.5, 4.5, 7.5, 10.5]


def test_an_empty_span_still_has_bins():
    assert time_axis(0.0).width_s > 0


@pytest.mark.parametrize(("span", "unit"), [(0.1, "ms"), (100, "s"), (3600, "min"), (86400, "h"), (10 * 86400, "days")])
def test_the_unit_suits_the_span(span: float, unit: str):
    assert time_unit(span)[0] == unit


def test_events_on_the_last_edge_are_not_lost():
    axis = time_axis(4.0, bins=4)
    assert sum_per_bin(axis, [0.0, 3.9, 4.0]).tolist() == [1, 0, 0, 2]


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 5)), max_size=50))
def test_binning_keeps_every_weight(events: list[tuple[float, int]]):
    axis = time_axis(10.0, bins=7)
    total = sum_per_bin(axis, [t for t, _ in events], [w for _, w in events]).sum()
    assert total == sum(w for _, w in events)


def test_average_counts_the_time_between_steps_as_nothing():
    axis = time_axis(10.0, bins=2)
    assert time_average(axis, [0.0, 8.0], [4.0, 2.0], [5.0, 10.0]).tolist() == [4.0, 4.0]


def test_average_of_one_long_step_reaches_every_bin_it_spans():
    axis = time_axis(8.0, bins=4)
    assert time_average(axis, [0.0], [8.0], [3.0]).tolist() == [3.0] * 4


@given(st.lists(st.tuples(st.floats(0.01, 2), st.floats(0, 1), st.floats(0, 9)), min_size=1, max_size=30))
def test_averages_add_up_to_the_area(steps: list[tuple[float, float, float]]):
    length, idle, value = (np.array(column) for column in zip(*steps, strict=True))
    start = np.cumsum(length + idle) - length - idle
    axis = time_axis(float(start[-1] + length[-1]), bins=5)
    area = time_average(axis, start, length, value).sum() * axis.width_s
    assert area == pytest.approx(float((length * value).sum()), rel=1e-9, abs=1e-9)


def test_extremes_leave_bins_without_steps_open():
    axis = time_axis(6.0, bins=3)
    low, high = extremes_per_bin(axis, [0.0, 1.0, 4.5], [2.0, 7.0, 3.0])
    assert low.tolist()[0::2] == [2.0, 3.0]
    assert high.tolist()[0::2] == [7.0, 3.0]
    assert np.isnan(low[1])


def test_log_edges_hold_all_values_even_equal_ones():
    for values in (np.array([0.04]), np.array([1e-6, 3.0, 5e4])):
        edges = log_edges(values)
        assert edges[0] <= values.min()
        assert edges[-1] >= values.max()
        assert np.all(np.diff(edges) > 0)


def test_a_share_of_nothing_is_not_a_number():
    assert np.isnan(ratio([0], [0])[0])
