"""Arrival patterns: rates, burstiness, order, and the closed loop."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from workloads.arrivals import Arrivals, Release, Releases


def times(value: Any, count: int, seed: int = 0) -> np.ndarray:
    return np.array(list(islice(Arrivals.model_validate(value).times(np.random.default_rng(seed)), count)))


@pytest.mark.parametrize(
    ("value", "rate"),
    [
        ({"poisson": {"rate_per_s": 5}}, 5),
        ({"gamma": {"rate_per_s": 5, "burstiness": 0.3}}, 5),
        ({"gamma": {"rate_per_s": 0.01}}, 0.01),
        ({"constant": {"rate_per_s": 8}}, 8),
        ({"on_off": {"rate_per_s": 10, "on_s": 2, "off_s": 3}}, 4),
        ({"on_off": {"rate_per_s": 10, "off_rate_per_s": 2, "on_s": {"exponential": {"mean": 1}}, "off_s": 1}}, 6),
        ({"diurnal": {"mean_rate_per_s": 3, "period_s": 100, "amplitude": 1}}, 3),
    ],
)
def test_the_rate_is_as_stated(value: Any, rate: float) -> None:
    series = times(value, 20_000)
    assert (np.diff(series) >= 0).all()
    assert len(series) / series[-1] == pytest.approx(rate, rel=0.06)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_of_gamma_vary_with_one_over_the_root_of_burstiness(burstiness: float) -> None:
    gaps = np.diff(times({"gamma": {"rate_per_s": 2, "burstiness": burstiness}}, 50_000))
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.03)


def test_constant_arrivals_are_even_and_begin_at_0() -> None:
    assert times({"constant": {"rate_per_s": 4}}, 4).tolist() == [0, 0.25, 0.5, 0.75]


def test_all_at_once_in_both_forms() -> None:
    assert times("all_at_once", 3).tolist() == [0, 0, 0]
    assert times({"all_at_once": {"at_s": 7}}, 2).tolist() == [7, 7]


def test_nothing_arrives_while_off() -> None:
    phase = times({"on_off": {"rate_per_s": 50, "on_s": 1, "off_s": 3}}, 5000) % 4
    assert phase.max() < 1
    assert phase.mean() == pytest.approx(0.5, abs=0.02)


def test_the_day_has_its_peak_where_it_should() -> None:
    phase = times({"diurnal": {"mean_rate_per_s": 5, "amplitude": 0.9, "period_s": 60, "peak_s": 20}}, 30_000) % 60
    counts, _ = np.histogram(phase, bins=6, range=(0, 60))
    assert counts.argmax() in (1, 2)
    assert counts.argmin() in (4, 5)


def test_times_from_a_file_are_sorted_and_end_with_it(tmp_path: Any) -> None:
    path = tmp_path / "times.txt"
    path.write_text("0.5\n# later\n3\n1.5\n")
    arrivals = Arrivals.model_validate({"file": {"path": str(path)}})
    assert list(arrivals.times(np.random.default_rng(0))) == [0.5, 1.5, 3]
    assert arrivals.limit == 3
    assert arrivals.out_of_order


@pytest.mark.parametrize("text", ["", "# no\n", "1\nx\n", "-1\n", "nan\n", "1,2\n", "inf\n"])
def test_a_bad_file_of_times_is_refused_in_one_line(tmp_path: Any, text: str) -> None:
    path = tmp_path / "times.txt"
    path.write_text(text)
    with pytest.raises(ValidationError) as caught:
        Arrivals.model_validate({"file": {"path": str(path)}})
    (error,) = caught.value.errors()
    assert error["loc"] == ("file",)
    assert "times.txt" in error["msg"]


NAN = math.nan


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "arrival pattern such as"),
        ("poisson", "arrival pattern such as"),
        (None, "arrival pattern such as"),
        ({}, "exactly one"),
        ({"poison": {"rate_per_s": 1}}, "unknown arrival pattern 'poison'"),
        ({"poisson": {"rate_per_s": 1}, "constant": {"rate_per_s": 1}}, "not 2"),
        ({"poisson": {}}, "required"),
        ({"poisson": {"rate_per_s": 0}}, "greater than 0"),
        ({"poisson": {"rate_per_s": -3}}, "greater than 0"),
        ({"poisson": {"rate_per_s": NAN}}, "finite"),
        ({"poisson": {"rate_per_s": math.inf}}, "finite"),
        ({"poisson": {"rate_per_s": 1e9}}, "less than or equal"),
        ({"poisson": {"rate_per_s": "5"}}, "number"),
        ({"poisson": {"rate_per_s": 5, "burstiness": 1}}, "not permitted"),
        ({"gamma": {"rate_per_s": 5, "burstiness": 0}}, "greater than 0"),
        ({"on_off": {"rate_per_s": 5, "on_s": 0, "off_s": 1}}, "at least 0.001 s"),
        ({"on_off": {"rate_per_s": 5, "on_s": 1, "off_s": -1}}, "greater than or equal to 0"),
        ({"diurnal": {"mean_rate_per_s": 5, "amplitude": 2}}, "less than or equal to 1"),
        ({"diurnal": {"mean_rate_per_s": 5, "period_s": 0}}, "greater than 0"),
        ({"closed_loop": {"clients": 0}}, "greater than or equal to 1"),
        ({"closed_loop": {"clients": 2.5}}, "integer"),
        ({"closed_loop": {"clients": 2, "think_s": -1}}, "greater than or equal to 0"),
        ({"all_at_once": {"at_s": -1}}, "greater than or equal to 0"),
        ({"file": {"path": "/does/not/exist"}}, "cannot read"),
    ],
)
def test_what_makes_no_sense_is_refused(value: Any, text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Arrivals.model_validate(value)
    (error,) = caught.value.errors()
    assert text in error["msg"]


patterns = st.sampled_from(
    [
        "all_at_once",
        {"poisson": {"rate_per_s": 3}},
        {"gamma": {"rate_per_s": 3, "burstiness": 0.2}},
        {"constant": {"rate_per_s": 3}},
        {"on_off": {"rate_per_s": 30, "on_s": {"exponential": {"mean": 0.1}}, "off_s": 1}},
        {"diurnal": {"mean_rate_per_s": 3}},
        {"closed_loop": {"clients": 9, "ramp_s": 4}},
    ]
)


@given(value=patterns, seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_any_pattern_never_falls_repeats_and_survives_being_written(value: Any, seed: int) -> None:
    series = times(value, 200, seed)
    assert (series >= 0).all()
    assert (np.diff(series) >= 0).all()
    written = Arrivals.model_validate(value).model_dump(mode="json")
    assert (times(written, 200, seed) == series).all()


def releases(value: Any) -> Releases:
    return Releases(Arrivals.model_validate(value), np.random.default_rng(0), np.random.default_rng(1))


def test_in_a_closed_loop_a_client_follows_its_own_last_request() -> None:
    loop = releases({"closed_loop": {"clients": 2, "think_s": 3, "ramp_s": 1}})
    seen = []
    for number in range(6):
        seen.append(next(loop))
        loop.ended(f"r{number}")
    assert seen[:2] == [Release(0.0), Release(0.5)]
    assert [release.after for release in seen[2:]] == ["r0", "r1", "r2", "r3"]
    assert {release.delay_s for release in seen[2:]} == {3}


def test_open_arrivals_follow_nobody() -> None:
    open_loop = releases({"constant": {"rate_per_s": 1}})
    for number in range(4):
        assert next(open_loop) == Release(float(number))
        open_loop.ended("x")


def test_a_used_up_file_ends_the_releases(tmp_path: Any) -> None:
    path = tmp_path / "times.txt"
    path.write_text("1\n2\n")
    assert [release.arrival_s for release in releases({"file": {"path": str(path)}})] == [1, 2]
