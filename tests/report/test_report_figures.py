"""Every figure draws on given axes, says what it shows, and stands empty tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from sim.errors import ResultsError
from sim.report.figures import compare, distributions, misses, timeline
from sim.report.folder import ResultsFolder
from sim.report.picture import NothingToShow, Picture
from sim.report.plots import RunPlots
from sim.report.style import DARK, LIGHT, color, new_figure, png_bytes, themed

RUN_PICTURES = [
    timeline.HIT_RATE,
    timeline.KV_USAGE,
    timeline.REQUESTS,
    timeline.EVICTIONS,
    timeline.WORK,
    distributions.LIFETIME,
    distributions.IDLE,
    distributions.TTFT,
    distributions.E2E,
    distributions.TPOT,
    distributions.QUEUE,
    distributions.ITL,
]


def tables_for(picture: Picture, folder: Path) -> list[Any]:
    source = ResultsFolder(folder)
    found: list[Any] = [source.table(name, columns) for name, columns in picture.needs.items()]
    return found + [None for _ in picture.welcome]


@pytest.mark.parametrize("picture", RUN_PICTURES, ids=lambda p: p.name)
def test_draws_on_given_axes_and_says_what_it_shows(picture: Picture, run_folder: Path):
    tables = tables_for(picture, run_folder)
    ax = Figure().add_subplot()
    assert picture.plot(*tables, ax=ax) is ax
    title = ax.get_title(loc="left") or ax.get_title()
    assert "[" in title, "a title states its unit"
    assert ax.has_data()
    sentence = picture.sentence(picture.compute(*tables))
    assert sentence.endswith(".")
    assert "nan" not in sentence


@pytest.mark.parametrize("picture", RUN_PICTURES, ids=lambda p: p.name)
def test_empty_tables_give_a_remark_and_no_error(picture: Picture, run_folder: Path):
    tables = [None if t is None else t.iloc[:0] for t in tables_for(picture, run_folder)]
    with pytest.raises(NothingToShow):
        picture.compute(*tables)
    ax = picture.plot(*tables)
    assert len(ax.texts) == 1


@pytest.mark.parametrize("picture", RUN_PICTURES, ids=lambda p: p.name)
def test_a_single_row_is_enough(picture: Picture, run_folder: Path):
    def one(table: pd.DataFrame | None) -> pd.DataFrame | None:
        if table is None:
            return None
        if "status" in table:
            return table[(table["status"] == "finished") & (table.get("output_tokens", 2) > 1)].iloc[:1]
        if "query_tokens" in table:
            return table[table["query_tokens"] > 0].iloc[:1]
        return table.iloc[:1]

    tables = [one(t) for t in tables_for(picture, run_folder)]
    assert png_bytes(picture.plot(*tables).get_figure(root=True)).startswith(b"\x89PNG")  # type: ignore[arg-type]


def test_equal_data_give_equal_bytes(run_folder: Path):
    tables = tables_for(timeline.HIT_RATE, run_folder)
    first, second = (png_bytes(timeline.HIT_RATE.plot(*tables).figure) for _ in range(2))
    assert first == second


def test_hit_rate_numbers():
    steps = pd.DataFrame(
        {"start_s": [0.0, 60.0], "duration_s": [60.0, 60.0], "query_tokens": [100, 300], "hit_tokens": [0, 200],
         "preemptions": [0, 3]}
    )  # fmt: skip
    data = timeline.compute_hit_rate(steps)
    assert data.so_far[-1] == 0.5
    assert np.nanmax(data.rate) == pytest.approx(2 / 3)
    assert data.preemptions.sum() == 3


def test_inter_token_counts_every_token_once_and_replaces_the_late_ones():
    steps = pd.DataFrame(
        {"step": [0, 1, 2], "start_s": [0.0, 1.0, 2.0], "duration_s": [1.0, 1.0, 1.0], "decode_requests": [1, 2, 2]}
    )
    plain = distributions.compute_itl(steps)
    assert plain.total == 5
    assert plain.quantiles == [1.0, 1.0, 1.0]
    stalls = pd.DataFrame({"step": [2, 2], "gap_s": [7.0, 9.0]})
    requests = pd.DataFrame({"output_tokens": [4, 4, 1]})  # six tokens after the first ones
    exact = distributions.compute_itl(steps, stalls, requests)
    assert exact.total == 6
    assert exact.quantiles[2] == 9.0


def test_zeros_are_counted_though_a_logarithmic_axis_has_no_place_for_them():
    data = distributions.spread(np.array([0.0, 0.0, 1.0, 2.0]))
    assert data.zeros == 0.5
    assert sum(part.sum() for part in data.parts.values()) == 0.5
    assert data.quantiles[0] == 0.5


def misses_and_tables() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    found = pd.DataFrame(
        {
            "time_s": [0.0, 1.0, 1.5, 9.0],
            "request_index": [0, 1, 1, 2],
            "cause": ["never_seen", "evicted", "evicted", "something_new"],
            "blocks": [10, 3, 1, 6],
        }
    )
    requests = pd.DataFrame({"request_index": [0, 1, 2], "category": ["chat", "agent", "agent"]})
    steps = pd.DataFrame({"start_s": [0.0, 9.0], "duration_s": [1.0, 1.0]})
    return found, requests, steps


def test_causes_over_time_and_by_category():
    found, requests, steps = misses_and_tables()
    over_time = misses.compute_over_time(found, steps)
    assert over_time.totals == {"never_seen": 10, "evicted": 4, "something_new": 6}
    assert "50.0 % never seen" in misses.read_over_time(over_time)
    assert misses.compute_over_time(found.drop(columns="blocks"), steps).totals["evicted"] == 2
    by_category = misses.compute_by_category(found, requests)
    assert by_category.categories == ["agent", "chat"]
    assert by_category.blocks["evicted"].tolist() == [4, 0]
    misses.miss_causes_by_category(found, requests)
    misses.miss_causes_over_time(found, steps)


def test_regret_by_depth_doubles_its_classes():
    evictions = pd.DataFrame({"depth_blocks": [0, 1, 2, 3, 4, 7, 8], "lifetime_s": 0.5})
    costs = pd.DataFrame(
        {"recomputed_tokens": [16, 0, 16, 0, 0, 0, 32], "better_victim": [1, 0, 0, 0, 0, 0, 1]}, index=evictions.index
    )
    data = misses.compute_regret_by_depth(evictions, costs)
    assert data.names == ["0", "1", "2–3", "4–7", "8–15"]
    assert data.evictions.tolist() == [1, 1, 2, 2, 1]
    assert data.tokens.tolist() == [16, 0, 8, 0, 32]
    assert data.avoidable.tolist() == [16, 0, 0, 0, 32]
    assert data.missed.tolist() == [1, 0, 0.5, 0, 1]
    assert misses.compute_regret_by_age(evictions, costs).names == ["< 1 s"]


def test_comparison_puts_runs_on_one_axis_of_time():
    long = pd.DataFrame({"start_s": [0.0, 5.0], "duration_s": [5.0, 5.0], "kv_usage": [0.5, 1.0]})
    data = compare.compute_series(compare.QUANTITIES[1], {"long": long, "short": long.iloc[:1], "none": long.iloc[:0]})
    assert list(data.lines) == ["long", "short"]
    assert data.totals == {"long": pytest.approx(0.75), "short": pytest.approx(0.5)}
    assert np.isnan(data.lines["short"][-1]), "a run that has ended is not drawn on"


def test_themes_leave_no_trace():
    before = color(0)
    with themed(DARK):
        assert color(0) == DARK.series[0]
    assert color(0) == before


def test_texts_of_users_are_no_formulas():
    with themed(LIGHT):
        figure = new_figure()
        figure.add_subplot().set_title("cost $x_1$ and a lone $ and 模型")
        assert png_bytes(figure)


def test_figures_show_themselves_in_a_notebook_without_pyplot(run_folder: Path):
    folder = ResultsFolder(run_folder)
    ax = timeline.hit_rate_over_time(folder.table("steps"))
    assert ax._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


def test_plots_have_a_method_for_every_picture(run_folder: Path):
    plots = RunPlots(ResultsFolder(run_folder).run)
    names = {picture.name for picture in RUN_PICTURES}
    assert names <= {name for name in dir(plots) if not name.startswith("_")}
    for name in names:
        ax = Figure().add_subplot()
        assert getattr(plots, name)(ax=ax) is ax
    assert "ttft" in repr(plots)


def test_a_plot_of_what_was_not_recorded_says_so(run_folder: Path):
    plots = RunPlots(ResultsFolder(run_folder).run)
    with pytest.raises(ResultsError, match="no table 'misses'"):
        plots.miss_causes_over_time()
    with pytest.raises(ResultsError, match="no table 'eviction_costs'"):
        plots.regret_by_depth()
