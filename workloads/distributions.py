"""Lengths and intervals as people state them: a number, or one named distribution.

In YAML::

    suffix_tokens: 128                                       # a constant
    suffix_tokens: {uniform: {min: 64, max: 512}}            # both ends included
    suffix_tokens: {lognormal: {mean: 512, sigma: 0.8, min: 1, max: 8192}}

The unit is in the name of the field (``_tokens``, ``_s``).  `min` and `max` clip: a value outside
becomes the bound, so a stated mean is the mean before clipping.  Lengths and counts are rounded to
the nearest whole number and never fall below what their field allows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from workloads.oneof import OneOf, Strict, fault

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MAX_TOKENS = 10_000_000
"""No length is longer, whatever the tail of its distribution."""
MAX_SECONDS = 1e9
"""No interval is longer (31 years)."""
MAX_POOL = 1_000_000
"""Most members of a pool whose popularity follows a Zipf law; also the largest value of `zipf`."""
_BATCH = 1024

Bound = Annotated[float, Field(ge=0, le=MAX_SECONDS)]
Positive = Annotated[float, Field(gt=0, le=MAX_SECONDS)]


class Shape(Strict):
    """One family of distributions of numbers ≥ 0."""

    def _sample(self, rng: np.random.Generator, count: int) -> FloatArray:
        """`count` independent values."""
        raise NotImplementedError

    def _sample_whole(self, rng: np.random.Generator, count: int) -> IntArray:
        """`count` independent whole numbers: values rounded to the nearest."""
        return np.rint(np.minimum(self._sample(rng, count), MAX_SECONDS)).astype(np.int64)

    def _mean_value(self) -> float:
        """The mean, before clipping."""
        raise NotImplementedError

    def _bounds(self) -> tuple[float, float]:
        """Least and largest possible value; the largest may be infinite."""
        raise NotImplementedError


class Clipped(Shape):
    """A family whose values are clipped to ``[min, max]``."""

    min: Bound | None = Field(default=None, description="smaller values become this")
    max: Bound | None = Field(default=None, description="larger values become this")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise fault(f"min ({self.min:g}) must not be larger than max ({self.max:g})")
        return self

    def _bounds(self) -> tuple[float, float]:
        return (self.min or 0.0, math.inf if self.max is None else self.max)

    def _raw(self, rng: np.random.Generator, count: int) -> FloatArray:
        """`count` values before clipping."""
        raise NotImplementedError

    def _sample(self, rng: np.random.Generator, count: int) -> FloatArray:
        return np.clip(self._raw(rng, count), *self._bounds())


class Uniform(Shape):
    """Every value of ``[min, max]`` is as likely; whole numbers include both ends."""

    min: Bound = Field(description="least value")
    max: Bound = Field(description="largest value")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise fault(f"min ({self.min:g}) must not be larger than max ({self.max:g})")
        return self

    def _bounds(self) -> tuple[float, float]:
        return self.min, self.max

    def _mean_value(self) -> float:
        return (self.min + self.max) / 2

    def _sample(self, rng: np.random.Generator, count: int) -> FloatArray:
        return self.min + (self.max - self.min) * rng.random(count)

    def _sample_whole(self, rng: np.random.Generator, count: int) -> IntArray:
        return rng.integers(math.ceil(self.min), math.floor(self.max), count, dtype=np.int64, endpoint=True)


class LogNormal(Clipped):
    """The logarithm is normal: many short ones, a long tail.  Give `mean` or `median`."""

    mean: Positive | None = Field(default=None, description="arithmetic mean, before clipping")
    median: Positive | None = Field(default=None, description="median, instead of the mean")
    sigma: Annotated[float, Field(ge=0, le=5)] = Field(description="standard deviation of the natural logarithm")

    @model_validator(mode="after")
    def _mean_or_median(self) -> Self:
        if (self.mean is None) == (self.median is None):
            raise fault("needs either mean or median")
        return self

    def _mean_value(self) -> float:
        if self.mean is not None:
            return self.mean
        return (self.median or 0.0) * math.exp(self.sigma**2 / 2)

    def _raw(self, rng: np.random.Generator, count: int) -> FloatArray:
        return rng.lognormal(math.log(self._mean_value()) - self.sigma**2 / 2, self.sigma, count)


class Gamma(Clipped):
    """Gamma with a given mean and coefficient of variation: shape = 1/cv², scale = mean·cv²."""

    mean: Positive = Field(description="mean, before clipping")
    cv: Annotated[float, Field(gt=0, le=10)] = Field(description="standard deviation / mean; 1 = exponential")

    def _mean_value(self) -> float:
        return self.mean

    def _raw(self, rng: np.random.Generator, count: int) -> FloatArray:
        return rng.gamma(1 / self.cv**2, self.mean * self.cv**2, count)


class Exponential(Clipped):
    """Exponential: the gaps of events without memory."""

    mean: Positive = Field(description="mean, before clipping")

    def _mean_value(self) -> float:
        return self.mean

    def _raw(self, rng: np.random.Generator, count: int) -> FloatArray:
        return rng.exponential(self.mean, count)


class Poisson(Clipped):
    """Poisson: whole numbers about a mean."""

    mean: Positive = Field(description="mean, before clipping")

    def _mean_value(self) -> float:
        return self.mean

    def _raw(self, rng: np.random.Generator, count: int) -> FloatArray:
        return rng.poisson(self.mean, count).astype(np.float64)


class Zipf(Shape):
    """Whole numbers k of ``[min, max]`` with a probability proportional to ``k ** -alpha``."""

    alpha: Annotated[float, Field(ge=0, le=10)] = Field(description="exponent; 0 = all alike")
    min: Annotated[int, Field(ge=1, le=MAX_POOL)] = Field(default=1, description="least value")
    max: Annotated[int, Field(ge=1, le=MAX_POOL)] = Field(description="largest value")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise fault(f"min ({self.min}) must not be larger than max ({self.max})")
        return self

    def _bounds(self) -> tuple[float, float]:
        return self.min, self.max

    def _mean_value(self) -> float:
        values = np.arange(self.min, self.max + 1, dtype=np.float64)
        weights = values**-self.alpha
        return float((values * weights).sum() / weights.sum())

    def _sample(self, rng: np.random.Generator, count: int) -> FloatArray:
        steps = _zipf_steps(self.alpha, self.min, self.max)
        return (self.min + np.searchsorted(steps, rng.random(count), side="right")).astype(np.float64)


class Empirical(Shape):
    """Measured values, each with a weight (all alike if none are given), here or in a file.

    The file has one value a line, or ``value,weight``; empty lines and ``#`` comments don't count.
    """

    values: Annotated[tuple[Bound, ...] | None, Field(strict=False)] = Field(
        default=None, description="the possible values"
    )
    weights: Annotated[tuple[Bound, ...] | None, Field(strict=False)] = Field(
        default=None, description="weight of each value; they need not add up to 1"
    )
    file: str | None = Field(default=None, description="file with the values, instead of them")
    _values: FloatArray = PrivateAttr()
    _steps: FloatArray = PrivateAttr()

    @model_validator(mode="after")
    def _load(self) -> Self:
        if (self.values is None) == (self.file is None):
            raise fault("needs either values or file")
        if self.file is not None:
            if self.weights is not None:
                raise fault("weights of a file stand in the file, as value,weight")
            values, weights = read_weighted(self.file)
        else:
            values = list(self.values or ())
            weights = [1.0] * len(values) if self.weights is None else list(self.weights)
        if not values:
            raise fault("needs at least one value")
        if len(values) != len(weights):
            raise fault(f"has {len(values)} values but {len(weights)} weights")
        total = sum(weights)
        if total <= 0:
            raise fault("the weights must add up to more than 0")
        # A value without weight can neither be drawn nor widen the bounds.
        kept = [(value, weight) for value, weight in zip(values, weights, strict=True) if weight > 0]
        self._values = np.array([value for value, _ in kept])
        self._steps = np.cumsum([weight / total for _, weight in kept])
        return self

    def _bounds(self) -> tuple[float, float]:
        return float(self._values.min()), float(self._values.max())

    def _mean_value(self) -> float:
        return float((self._values * np.diff(self._steps, prepend=0.0)).sum())

    def _sample(self, rng: np.random.Generator, count: int) -> FloatArray:
        at = np.searchsorted(self._steps, rng.random(count), side="right")
        drawn: FloatArray = self._values[np.minimum(at, len(self._values) - 1)]
        return drawn


class Distribution(OneOf):
    """A number ≥ 0, or a mapping with one distribution: ``{lognormal: {mean: 512, sigma: 0.8}}``."""

    noun: ClassVar[str] = "distribution"
    example: ClassVar[str] = "a number or a distribution such as {lognormal: {mean: 512, sigma: 0.8}}"
    shorthands: ClassVar[tuple[dict[str, Any], ...]] = ({"type": "number", "minimum": 0},)

    constant: Bound | None = Field(default=None, description="always this value")
    uniform: Uniform | None = Field(default=None, description=Uniform.__doc__)
    lognormal: LogNormal | None = Field(default=None, description=LogNormal.__doc__)
    gamma: Gamma | None = Field(default=None, description=Gamma.__doc__)
    exponential: Exponential | None = Field(default=None, description=Exponential.__doc__)
    poisson: Poisson | None = Field(default=None, description=Poisson.__doc__)
    zipf: Zipf | None = Field(default=None, description=Zipf.__doc__)
    empirical: Empirical | None = Field(default=None, description=(Empirical.__doc__ or "").split("\n")[0])

    @classmethod
    def expand(cls, value: object) -> object:
        """A number stands for ``{constant: number}``."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            return {"constant": value}
        return value

    def short(self) -> object:
        """The number of a constant, whole where it is."""
        value = self.constant
        return int(value) if value is not None and value.is_integer() else value

    @property
    def mean(self) -> float:
        """The mean, before clipping."""
        return self.constant if self.constant is not None else float(self.chosen._mean_value())

    @property
    def bounds(self) -> tuple[float, float]:
        """Least and largest possible value; the largest may be infinite."""
        if self.constant is not None:
            return self.constant, self.constant
        low, high = self.chosen._bounds()
        return low, high

    def sample(self, rng: np.random.Generator, count: int) -> FloatArray:
        """`count` independent values, at most `MAX_SECONDS`."""
        if self.constant is not None:
            return np.full(count, self.constant)
        values: FloatArray = np.minimum(self.chosen._sample(rng, count), MAX_SECONDS)
        return values

    def sample_whole(self, rng: np.random.Generator, count: int, least: int = 0) -> IntArray:
        """`count` independent whole numbers in ``[least, MAX_TOKENS]``."""
        if self.constant is not None:
            values = np.full(count, round(self.constant), dtype=np.int64)
        else:
            values = self.chosen._sample_whole(rng, count)
        return np.clip(values, least, MAX_TOKENS)

    def draws(self, rng: np.random.Generator) -> Iterator[float]:
        """Endless independent values."""
        if self.constant is not None:
            return repeat(self.constant)
        return _endless(lambda: self.sample(rng, _BATCH).tolist())

    def whole_draws(self, rng: np.random.Generator, least: int = 0) -> Iterator[int]:
        """Endless independent whole numbers ≥ `least`."""
        if self.constant is not None:
            return repeat(max(round(self.constant), least))
        return _endless(lambda: self.sample_whole(rng, _BATCH, least).tolist())


def constant(value: float) -> Distribution:
    """The distribution of one value."""
    return Distribution(constant=value)


def rank_draws(rng: np.random.Generator, count: int, exponent: float) -> Iterator[int]:
    """Endless ranks in ``[0, count)``; rank k is drawn in proportion to ``(k + 1) ** -exponent``."""
    if count == 1:
        return repeat(0)
    steps = _zipf_steps(exponent, 1, count)
    return _endless(lambda: np.searchsorted(steps, rng.random(_BATCH), side="right").tolist())


def read_weighted(path: str) -> tuple[list[float], list[float]]:
    """Values and weights of a file as `Empirical` describes it.

    Raises:
        PydanticCustomError: the file cannot be read, or a line is not one or two numbers ≥ 0.
    """
    values: list[float] = []
    weights: list[float] = []
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise fault(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    for number, line in enumerate(lines, 1):
        text = line.split("#", 1)[0].strip()
        if not text:
            continue
        try:
            row = [float(part) for part in text.split(",")]
        except ValueError:
            row = []
        if len(row) not in (1, 2) or not all(0 <= value <= MAX_SECONDS for value in row):
            raise fault(
                f"{path}:{number}: {text[:60]!r} must be `value` or `value,weight`, numbers from 0 to {MAX_SECONDS:g}"
            )
        values.append(row[0])
        weights.append(row[1] if len(row) == 2 else 1.0)
    return values, weights


def _endless(batch: Any) -> Iterator[Any]:
    while True:
        yield from batch()


@lru_cache(maxsize=32)
def _zipf_steps(alpha: float, low: int, high: int) -> FloatArray:
    """Cumulative probabilities of low … high; the last is a little above 1, so that no draw is beyond it."""
    weights = np.arange(low, high + 1, dtype=np.float64) ** -alpha
    steps = np.cumsum(weights / weights.sum())
    steps[-1] = 1.0 + 1e-9
    steps.setflags(write=False)
    return steps


def _whole(what: str, least: int, most: float) -> Any:
    """Validator of a distribution of whole numbers in ``[least, most]``."""

    def check(value: Distribution) -> Distribution:
        low, high = value.bounds
        fixed = value.name in ("constant", "uniform", "empirical")
        if fixed and not (low == math.floor(low) and high == math.floor(high)):
            raise fault(f"{what} are whole numbers, not {low if low != math.floor(low) else high:g}")
        if fixed and low < least:
            raise fault(f"must be at least {least}, not {low:g}")
        biggest = max(value.mean, high if math.isfinite(high) else 0.0)
        if biggest > most:
            raise fault(f"must be at most {most:,.0f}, not {biggest:,.0f}")
        return value

    return AfterValidator(check)


Tokens = Annotated[Distribution, _whole("tokens", 1, MAX_TOKENS)]
"""A length of at least one token."""
TokensOrNone = Annotated[Distribution, _whole("tokens", 0, MAX_TOKENS)]
"""A length that may be 0."""
Count = Annotated[Distribution, _whole("counts", 1, MAX_POOL)]
"""A number of things, at least one."""
CountOrNone = Annotated[Distribution, _whole("counts", 0, MAX_POOL)]
"""A number of things, or none."""
Seconds = Distribution
"""An interval of time in seconds, ≥ 0."""
