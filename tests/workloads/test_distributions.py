"""Distributions: what they mean, what they refuse, and that they repeat."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from workloads.distributions import (
    MAX_SECONDS,
    MAX_TOKENS,
    Count,
    CountOrNone,
    Distribution,
    Seconds,
    Tokens,
    TokensOrNone,
    constant,
    rank_draws,
)
from workloads.oneof import Strict


class Fields(Strict):
    """One field of each sort."""

    a_tokens: Tokens = constant(1)
    b_tokens: TokensOrNone = constant(0)
    count: Count = constant(1)
    maybe: CountOrNone = constant(0)
    wait_s: Seconds = constant(0)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


MEANS: list[tuple[Any, float]] = [
    (128, 128),
    ({"constant": 7}, 7),
    ({"uniform": {"min": 64, "max": 512}}, 288),
    ({"lognormal": {"mean": 500, "sigma": 0.8}}, 500),
    ({"lognormal": {"median": 500, "sigma": 0.8}}, 500 * math.exp(0.32)),
    ({"gamma": {"mean": 300, "cv": 0.5}}, 300),
    ({"exponential": {"mean": 300}}, 300),
    ({"poisson": {"mean": 30}}, 30),
    ({"zipf": {"alpha": 0, "min": 1, "max": 99}}, 50),
    ({"zipf": {"alpha": 1, "max": 3}}, 3 / (1 + 1 / 2 + 1 / 3)),
    ({"empirical": {"values": [10, 20, 90]}}, 40),
    ({"empirical": {"values": [10, 20, 90], "weights": [1, 0, 3]}}, 70),
]


@pytest.mark.parametrize(("value", "mean"), MEANS)
def test_the_mean_is_as_stated(value: Any, mean: float) -> None:
    distribution = Distribution.model_validate(value)
    assert distribution.mean == pytest.approx(mean)
    sample = distribution.sample(rng(), 200_000)
    assert sample.mean() == pytest.approx(mean, rel=0.02)
    whole = distribution.sample_whole(rng(1), 200_000)
    assert whole.dtype == np.int64
    assert whole.mean() == pytest.approx(mean, rel=0.02)


def test_the_spread_of_gamma_and_lognormal_is_as_stated() -> None:
    gamma = Distribution.model_validate({"gamma": {"mean": 200, "cv": 0.25}}).sample(rng(), 100_000)
    assert gamma.std() / gamma.mean() == pytest.approx(0.25, rel=0.02)
    lognormal = Distribution.model_validate({"lognormal": {"mean": 200, "sigma": 0.6}}).sample(rng(), 100_000)
    assert np.log(lognormal).std() == pytest.approx(0.6, rel=0.02)


def test_a_uniform_of_whole_numbers_includes_both_ends_alike() -> None:
    values = Distribution.model_validate({"uniform": {"min": 3, "max": 6}}).sample_whole(rng(), 40_000)
    counts = np.bincount(values)
    assert counts.nonzero()[0].tolist() == [3, 4, 5, 6]
    assert counts[3:].min() > 9_500


def test_clipping_moves_to_the_bound() -> None:
    value = {"lognormal": {"mean": 100, "sigma": 2, "min": 50, "max": 200}}
    sample = Distribution.model_validate(value).sample(rng(), 10_000)
    assert sample.min() == 50
    assert sample.max() == 200
    assert (sample == 200).any()


def test_tails_end_at_the_largest_length_and_small_values_at_the_least() -> None:
    tail = Distribution.model_validate({"lognormal": {"mean": 1e6, "sigma": 5}})
    values = tail.sample_whole(rng(), 100_000, 1)
    assert values.min() == 1
    assert values.max() == MAX_TOKENS
    assert tail.sample(rng(), 100_000).max() <= MAX_SECONDS


def test_a_file_gives_values_and_weights(tmp_path: Any) -> None:
    path = tmp_path / "lengths.txt"
    path.write_text("# measured\n10\n\n20, 3   # often\n")
    distribution = Distribution.model_validate({"empirical": {"file": str(path)}})
    assert distribution.mean == pytest.approx(17.5)
    assert set(distribution.sample_whole(rng(), 1000).tolist()) == {10, 20}


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "10\nten\n", "1,2,3\n", "-4\n", "nan\n", "1,-1\n", "inf\n", "1,0\n"]
)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Any, text: str) -> None:
    path = tmp_path / "lengths.txt"
    path.write_text(text)
    with pytest.raises(ValidationError) as caught:
        Distribution.model_validate({"empirical": {"file": str(path)}})
    (error,) = caught.value.errors()
    assert error["loc"] == ("empirical",)
    assert "\n" not in error["msg"]


def test_a_bad_line_of_a_file_is_named(tmp_path: Any) -> None:
    path = tmp_path / "lengths.txt"
    path.write_text("10\nten\n")
    with pytest.raises(ValidationError, match=r"lengths\.txt:2: 'ten' must be"):
        Distribution.model_validate({"empirical": {"file": str(path)}})


def test_a_binary_or_missing_file_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "lengths.bin"
    path.write_bytes(b"\xff\xfe\x00")
    for name in (path, tmp_path / "missing", tmp_path):
        with pytest.raises(ValidationError, match="cannot read"):
            Distribution.model_validate({"empirical": {"file": str(name)}})


NAN, INF = math.nan, math.inf
BAD: list[tuple[str, Any, str]] = [
    ("a_tokens", 0, "at least 1"),
    ("a_tokens", -1, "greater than or equal to 0"),
    ("a_tokens", 12.5, "whole"),
    ("a_tokens", NAN, "finite"),
    ("a_tokens", INF, "finite|less than"),
    ("a_tokens", 1e8, "at most 10,000,000"),
    ("a_tokens", 1e300, "less than or equal"),
    ("a_tokens", True, "a number or a distribution"),
    ("a_tokens", "128", "a number or a distribution"),
    ("a_tokens", None, "a number or a distribution"),
    ("a_tokens", [1, 2], "a number or a distribution"),
    ("a_tokens", {}, "exactly one"),
    ("a_tokens", {"constant": None}, "exactly one"),
    ("a_tokens", {"normal": {"mean": 1}}, "unknown distribution 'normal'; known: constant"),
    ("a_tokens", {"poisson": {"mean": 1}, "constant": 1}, "not 2"),
    ("a_tokens", {"constant": "1"}, "number"),
    ("a_tokens", {"uniform": {"min": 0, "max": 4}}, "at least 1"),
    ("a_tokens", {"uniform": {"min": 5, "max": 4}}, "must not be larger"),
    ("a_tokens", {"uniform": {"min": 1.5, "max": 4}}, "whole"),
    ("a_tokens", {"uniform": {"min": 1, "max": 1e8}}, "at most"),
    ("a_tokens", {"uniform": {"min": 1}}, "required"),
    ("a_tokens", {"lognormal": {"mean": 0, "sigma": 1}}, "greater than 0"),
    ("a_tokens", {"lognormal": {"mean": 5, "sigma": -1}}, "greater than or equal"),
    ("a_tokens", {"lognormal": {"mean": 5, "sigma": 50}}, "less than or equal"),
    ("a_tokens", {"lognormal": {"mean": 5, "sigma": NAN}}, "finite"),
    ("a_tokens", {"lognormal": {"mean": 5, "median": 5, "sigma": 1}}, "either mean or median"),
    ("a_tokens", {"lognormal": {"sigma": 1}}, "either mean or median"),
    ("a_tokens", {"lognormal": {"mean": 5, "sigma": 1, "min": 9, "max": 2}}, "must not be larger"),
    ("a_tokens", {"lognormal": {"mean": 5, "sigma": 1, "cv": 2}}, "not permitted"),
    ("a_tokens", {"lognormal": {"mean": 9e8, "sigma": 1}}, "at most 10,000,000"),
    ("a_tokens", {"gamma": {"mean": 5, "cv": 0}}, "greater than 0"),
    ("a_tokens", {"gamma": 5}, "dictionary|Gamma"),
    ("a_tokens", {"exponential": {"mean": -2}}, "greater than 0"),
    ("a_tokens", {"poisson": {"mean": NAN}}, "finite"),
    ("a_tokens", {"zipf": {"alpha": -1, "max": 5}}, "greater than or equal"),
    ("a_tokens", {"zipf": {"alpha": 1, "max": 0}}, "greater than or equal"),
    ("a_tokens", {"zipf": {"alpha": 1, "min": 4, "max": 2}}, "must not be larger"),
    ("a_tokens", {"zipf": {"alpha": 1, "max": 10**9}}, "less than or equal"),
    ("a_tokens", {"empirical": {}}, "either values or file"),
    ("a_tokens", {"empirical": {"values": []}}, "at least one value"),
    ("a_tokens", {"empirical": {"values": [1], "file": "x"}}, "either values or file"),
    ("a_tokens", {"empirical": {"file": "x", "weights": [1]}}, "stand in the file"),
    ("a_tokens", {"empirical": {"values": [1, 2], "weights": [1]}}, "2 values but 1 weights"),
    ("a_tokens", {"empirical": {"values": [1, 2], "weights": [0, 0]}}, "more than 0"),
    ("a_tokens", {"empirical": {"values": [1, 2], "weights": [-1, 2]}}, "greater than or equal"),
    ("a_tokens", {"empirical": {"values": ["1"]}}, "number"),
    ("a_tokens", {"empirical": {"values": [0, 1]}}, "at least 1"),
    ("a_tokens", {"empirical": {"values": [1.5]}}, "whole"),
    ("a_tokens", {"empirical": {"values": 5}}, "tuple"),
    ("b_tokens", -1, "greater than or equal"),
    ("b_tokens", 0.5, "whole"),
    ("count", 0, "at least 1"),
    ("count", 1e7, "at most 1,000,000"),
    ("maybe", 2.5, "counts are whole"),
    ("wait_s", -0.1, "greater than or equal"),
    ("wait_s", NAN, "finite"),
    ("wait_s", 1e10, "less than or equal"),
]


@pytest.mark.parametrize(("field", "value", "text"), BAD)
def test_what_makes_no_sense_is_refused_at_its_place(field: str, value: Any, text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Fields.model_validate({field: value})
    errors = caught.value.errors()
    assert all(error["loc"][0] == field for error in errors)
    assert len(errors) == 1
    assert any(part in errors[0]["msg"] for part in text.split("|")), errors[0]["msg"]


def test_a_value_without_weight_neither_counts_nor_is_drawn() -> None:
    fields = Fields.model_validate({"a_tokens": {"empirical": {"values": [0, 4], "weights": [0, 1]}}})
    assert set(fields.a_tokens.sample_whole(rng(), 100).tolist()) == {4}


shapes = st.one_of(
    st.integers(1, 1000),
    st.builds(lambda a, b: {"uniform": {"min": min(a, b), "max": max(a, b)}}, st.integers(1, 99), st.integers(1, 99)),
    st.builds(lambda m, s: {"lognormal": {"mean": m, "sigma": s}}, st.floats(0.1, 1e4), st.floats(0, 3)),
    st.builds(lambda m, c: {"gamma": {"mean": m, "cv": c, "min": 2}}, st.floats(0.1, 1e4), st.floats(0.1, 3)),
    st.builds(lambda m: {"poisson": {"mean": m, "max": 9}}, st.floats(0.1, 100)),
    st.builds(lambda m: {"exponential": {"mean": m}}, st.floats(0.1, 100)),
    st.builds(lambda a, m: {"zipf": {"alpha": a, "max": m}}, st.floats(0, 3), st.integers(1, 99)),
    st.builds(lambda v: {"empirical": {"values": v}}, st.lists(st.integers(1, 50), min_size=1, max_size=9)),
)


@given(shape=shapes, seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_any_length_lies_within_its_bounds_repeats_and_survives_being_written(shape: Any, seed: int) -> None:
    fields = Fields.model_validate({"a_tokens": shape})
    low, high = fields.a_tokens.bounds
    values = fields.a_tokens.sample_whole(rng(seed), 50, 1)
    assert values.min() >= max(1, math.floor(low))
    assert values.max() <= max(1, high if math.isinf(high) else math.ceil(high))
    assert (values == fields.a_tokens.sample_whole(rng(seed), 50, 1)).all()
    again = Fields.model_validate_json(fields.model_dump_json())
    assert (values == again.a_tokens.sample_whole(rng(seed), 50, 1)).all()
    draws = fields.a_tokens.whole_draws(rng(seed), 1)
    assert min(next(draws) for _ in range(20)) >= 1


def test_a_constant_is_written_as_a_number() -> None:
    assert Fields.model_validate({"a_tokens": 5, "wait_s": 0.5}).model_dump() == {
        "a_tokens": 5,
        "b_tokens": 0,
        "count": 1,
        "maybe": 0,
        "wait_s": 0.5,
    }


def test_draws_go_on_beyond_a_batch_and_differ() -> None:
    draws = Distribution.model_validate({"exponential": {"mean": 1}}).draws(rng())
    values = [next(draws) for _ in range(3000)]
    assert len(set(values)) == 3000


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.5])
def test_ranks_follow_the_zipf_law(exponent: float) -> None:
    draws = rank_draws(rng(), 5, exponent)
    counts = np.bincount([next(draws) for _ in range(50_000)], minlength=5)
    expected = np.arange(1, 6) ** -exponent
    assert counts / 50_000 == pytest.approx(expected / expected.sum(), abs=0.01)


def test_a_pool_of_one_has_only_rank_0() -> None:
    draws = rank_draws(rng(), 1, 1.0)
    assert {next(draws) for _ in range(10)} == {0}


def test_the_json_schema_offers_a_number_or_exactly_one_distribution() -> None:
    schema = Fields.model_json_schema()["$defs"]["Distribution"]
    number, mapping = schema["anyOf"]
    assert number["type"] == "number"
    assert mapping["maxProperties"] == mapping["minProperties"] == 1
    assert set(mapping["properties"]) == set(Distribution.model_fields)
