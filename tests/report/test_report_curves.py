"""The figure of capacity curves."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from sim.analysis.curves import Curve, CurveSet, Need, Point, Rates
from sim.report.figures.curves import capacity_curves, compute_curves, read_curves


def rates(share: float) -> Rates:
    return Rates(int(1000 * share), share, share, share, share, share)


def curve(policy: str, shares: list[float], enough: int | None, dense: bool = False) -> Curve:
    points = tuple(Point(10 * 4**i, rates(share)) for i, share in enumerate(shares))
    drawn = ((5, 0.01), (20, 0.15), (160, 0.4), (9999, 0.5)) if dense else ()
    return Curve(policy, "", points, (Need(0.5, 1, "exact"), Need(0.9, enough, "exact")), 40 if dense else None, drawn)


CURVES = CurveSet(
    10, 0, 1000, 500, 16_000, 16, 30, rates(0.5),
    (curve("lru", [0.1, 0.2, 0.4], 300, dense=True), curve("fifo", [0.1, 0.2, 0.3], None),
     curve("optimum", [0.2, 0.4, 0.5], 120)),
)  # fmt: skip


def test_the_optimum_comes_first_and_dense_points_stay_within_the_capacities():
    data = compute_curves(CURVES)
    assert [line.policy for line in data.lines] == ["optimum", "lru", "fifo"]
    assert data.lines[1].x.tolist() == [10, 20, 40, 160, 160]
    assert np.all(np.diff(data.lines[1].x) >= 0)


def test_the_sentence_tells_what_is_enough_and_for_whom_nothing_was():
    text = read_curves(compute_curves(CURVES))
    assert "hits 50.0 % of the blocks" in text
    assert "optimum 120, lru 300; fifo did not reach it" in text


def test_every_policy_is_drawn_and_named():
    ax = Figure().add_subplot()
    assert capacity_curves(CURVES, ax=ax) is ax
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["optimum", "lru", "fifo"]
    assert "[% of blocks]" in ax.get_title(loc="left") + ax.get_title()
