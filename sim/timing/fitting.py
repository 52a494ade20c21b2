"""Coefficients from measured points: of `linear` by least squares, of `roofline` by Gauss-Newton steps.

Both minimise relative errors, so that a step of 5 ms counts as much as one of 500 ms.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sim.timing.base import FloatArray, StepTime
from sim.timing.config import Efficiencies
from sim.timing.gpus import GpuSpec
from sim.timing.linear import LinearStepTime
from sim.timing.models import ModelSpec
from sim.timing.points import MeasuredPoints, MeasurementError
from sim.timing.roofline import RooflineStepTime

# what a table of step times can tell about a roofline, and the most that each may become
_FITTED = {
    "weight_bandwidth": 1.0,
    "kv_bandwidth": 1.0,
    "compute": 1.0,
    "layer_s": 1e-3,
    "step_s": 0.1,
    "request_s": 1e-2,
}
_PRIOR = 0.003  # pull towards the defaults, in relative error per e-fold: decides what the points leave open


class Fit(NamedTuple):
    """Coefficients by name, and the relative errors that they leave (predicted / measured − 1), one per point."""

    kind: str
    coefficients: dict[str, float]
    errors: FloatArray

    def error_summary(self) -> dict[str, float]:
        """Median, mean and largest absolute relative error."""
        size = np.abs(self.errors)
        return {
            "median_abs_error": float(np.median(size)),
            "mean_abs_error": float(size.mean()),
            "max_abs_error": float(size.max()),
        }


def fit_linear(points: MeasuredPoints) -> Fit:
    """The non-negative coefficients of `linear` with the least squared relative error.

    With four coefficients at most, every subset that may be non-zero is solved and the best one
    without a negative value wins, which is the exact non-negative solution.
    Raises `MeasurementError` for fewer points than two.
    """
    if len(points.seconds) < 2:
        raise MeasurementError(f"a fit needs at least two measurements, found {len(points.seconds)}")
    columns = points.columns
    names = ["step_s", "prefill_token_s", "decode_request_s", "context_kilotoken_s"]
    matrix = np.stack(
        [
            np.ones(len(points.seconds)),
            columns["prefill_tokens"],
            columns["decode_requests"],
            columns["context_tokens"] / 1000.0,
        ],
        axis=1,
    )
    weighted = matrix / points.seconds[:, None]
    best: tuple[float, FloatArray] | None = None
    used = [i for i in range(4) if matrix[:, i].any()]
    for count in range(1, len(used) + 1):
        for subset in itertools.combinations(used, count):
            chosen = list(subset)
            solution, *_ = np.linalg.lstsq(weighted[:, chosen], np.ones(len(weighted)), rcond=None)
            if (solution < 0).any():
                continue
            rest = float(((weighted[:, chosen] @ solution - 1.0) ** 2).sum())
            if best is None or rest < best[0] * (1 - 1e-9):
                full = np.zeros(4)
                full[chosen] = solution
                best = (rest, full)
    if best is None:
        raise MeasurementError("no non-negative coefficients describe these measurements")
    coefficients = dict(zip(names, map(float, best[1]), strict=True))
    return Fit("linear", coefficients, _errors(LinearStepTime(**coefficients), points))


def fit_roofline(
    points: MeasuredPoints, model: ModelSpec, gpu: GpuSpec, *, tensor_parallel_size: int = 1, dtype: str | None = None
) -> Fit:
    """The efficiencies of `roofline` that these points ask for; what they leave open stays near the defaults."""
    if len(points.seconds) < 2:
        raise MeasurementError(f"a fit needs at least two measurements, found {len(points.seconds)}")
    defaults = Efficiencies()
    names = list(_FITTED)
    start = np.log([getattr(defaults, name) for name in names])
    most = np.log(list(_FITTED.values()))

    def step_time(logs: FloatArray) -> RooflineStepTime:
        values = {n: float(min(np.exp(v), _FITTED[n])) for n, v in zip(names, logs, strict=True)}
        return RooflineStepTime(
            model,
            gpu,
            tensor_parallel_size=tensor_parallel_size,
            dtype=dtype,
            efficiencies=Efficiencies(**values),
        )

    def residuals(logs: FloatArray) -> FloatArray:
        prior = _PRIOR * np.sqrt(len(points.seconds)) * (logs - start)
        return np.concatenate([_errors(step_time(logs), points), prior])

    logs = _least_squares(residuals, start, most)
    final = step_time(logs)
    coefficients = {name: getattr(final.efficiencies, name) for name in names}
    return Fit("roofline", coefficients, _errors(final, points))


def _errors(step_time: StepTime, points: MeasuredPoints) -> FloatArray:
    return step_time.seconds_many(points.columns) / points.seconds - 1.0


def _least_squares(residuals: Callable[[FloatArray], FloatArray], start: FloatArray, most: FloatArray) -> FloatArray:
    """Levenberg-Marquardt with numerical derivatives; deterministic, at most 60 steps."""
    point, damping, width = start.copy(), 1e-2, 1e-4
    rest = residuals(point)
    for _ in range(60):
        slopes = np.stack([(residuals(point - width * unit) - rest) / -width for unit in np.eye(len(point))], axis=1)
        normal = slopes.T @ slopes
        improved = False
        while damping < 1e8:
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-12), -slopes.T @ rest)
            candidate = np.minimum(point + step, most)
            new = residuals(candidate)
            if new @ new < rest @ rest:
                improved, damping = True, damping / 3
                break
            damping *= 4
        if not improved:
            break
        done = rest @ rest - new @ new < 1e-10 * (rest @ rest)
        point, rest = candidate, new
        if done:
            break
    return point
