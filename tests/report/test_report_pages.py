"""Pages are self-contained, escaped, whole, and say what is missing."""

from __future__ import annotations

import copy
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import CONFIG, SUMMARY, make_evictions, make_points, make_requests, make_steps, write_run, write_sweep

from sim.errors import ResultsError
from sim.report.build import write_report
from sim.report.compare_page import write_comparison
from sim.report.comparison import as_json, as_text, change, compare

HOSTILE = "<script>alert('x')</script>\"&'"


class Page(HTMLParser):
    """What a browser would load or run."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img", "source", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, "tags are nested"

    def handle_data(self, data: str) -> None:
        self.words += data.replace("\u00a0", " ")

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def check_page(path: Path) -> Page:
    """What holds for every page."""
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert text.startswith("<!DOCTYPE html>")
    assert not page.of("script")
    assert not [a for _, attrs in page.tags for a in attrs if a.startswith("on")]
    for tag, attrs in page.tags:
        for name in ("src", "srcset", "href"):
            value = attrs.get(name)
            if value is not None:
                assert value.startswith(("data:", "#")), f"<{tag} {name}> loads {value[:60]}"
    assert "url(" not in text
    assert "@import" not in text
    anchors = {attrs["id"] for _, attrs in page.tags if "id" in attrs}
    assert {a["href"][1:] for a in page.of("a") if a["href"]} <= anchors  # type: ignore[index]
    for image in page.of("img"):
        assert len(image["alt"] or "") > 30
        assert image["width"]
    assert len(page.of("img")) == len(page.of("source"))
    return page


@pytest.fixture(scope="module")
def run_page(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(run_folder, tmp_path_factory.mktemp("page") / "report.html")


def test_page_of_a_run(run_page: Path):
    page = check_page(run_page)
    assert len(page.of("img")) == 12
    assert "How much of a chat's prompts" in page.words
    assert "41.20 %" in page.words
    assert "hit blocks / full prompt blocks" in page.words, "numbers stand with their definitions"
    assert "12 requests were rejected: prompt is longer than max_model_len" in page.words
    assert "num_gpu_blocks: 4000" in page.words
    assert "2 × skipped: empty prompt" in page.words
    assert "timestamps were sorted" in page.words
    assert "recording.misses" in page.words, "what is not shown is named, and how to get it"
    pictures = sorted(p.name for p in (run_page.parent / "figures").glob("*.png"))
    assert len(pictures) == 12


def test_nothing_of_the_writing_is_left_behind(run_page: Path):
    assert sorted(p.name for p in run_page.parent.iterdir()) == ["figures", "report.html"]


def test_same_results_same_page(run_page: Path, run_folder: Path, tmp_path: Path):
    again = write_report(run_folder, tmp_path / "report.html")
    assert again.read_bytes() == run_page.read_bytes()


def hostile(value: Any) -> Any:
    """The same structure with every text hostile."""
    if isinstance(value, dict):
        return {k: hostile(v) for k, v in value.items()}
    return HOSTILE if isinstance(value, str) else value


def test_names_are_text_wherever_they_stand(tmp_path: Path):
    config = {**hostile(copy.deepcopy(CONFIG)), HOSTILE: HOSTILE}
    summary = copy.deepcopy(SUMMARY)
    summary["not_finished"] = {HOSTILE: {HOSTILE: 3}}
    summary[HOSTILE] = 1.0
    summary["definitions"] = {**summary["definitions"], HOSTILE: HOSTILE, "evictions": HOSTILE}
    requests = make_requests(np.random.default_rng(0), 50)
    requests["category"] = HOSTILE
    requests["request_id"] = HOSTILE
    first = write_run(tmp_path / "<b>a&", config=config, summary=summary, requests=requests)
    second = write_run(tmp_path / "$x_1$", summary=summary)
    third = write_run(tmp_path / "_hidden")
    page = check_page(write_report(first))
    assert page.words.count(HOSTILE) >= 4
    assert not page.of("b") or "<b>a&" in page.words
    compared = check_page(write_comparison(compare([first, second, third]), tmp_path / "c" / "compare.html"))
    assert HOSTILE in compared.words
    assert "_hidden" in compared.words
    points = make_points(seeds=1)
    points["eviction.policy"] = [HOSTILE if i % 2 else "lru" for i in range(len(points))]
    points["status"] = ["failed", *["finished"] * (len(points) - 1)]
    points["error"] = [HOSTILE, *[""] * (len(points) - 1)]
    sweep = check_page(
        write_report(write_sweep(tmp_path / "sweep", points, name=HOSTILE, held_fixed={HOSTILE: HOSTILE}))
    )
    assert HOSTILE in sweep.words
    for folder in (tmp_path, first, tmp_path / "c", tmp_path / "sweep"):
        for picture in folder.glob("**/*.png"):
            assert re.fullmatch(r"[a-z0-9_]+\.png", picture.name), "no user's text reaches a path"


def test_a_run_in_which_nothing_happened(tmp_path: Path):
    rng = np.random.default_rng(0)
    requests = make_requests(rng, 3)
    requests["status"] = "rejected"
    folder = write_run(
        tmp_path / "empty",
        summary={"requests": {"total": 3, "finished": 0, "rejected": 3}, "evictions": 0, "hit_rate": {"tokens": None}},
        requests=requests,
        steps=make_steps(rng, 1).iloc[:0],
        evictions=make_evictions(rng, 1).iloc[:0],
    )
    page = check_page(write_report(folder))
    assert not page.of("img")
    assert "no step was taken" in page.words
    assert "no request finished" in page.words


def test_a_run_that_evicted_nothing_and_recorded_little(tmp_path: Path):
    rng = np.random.default_rng(0)
    folder = write_run(tmp_path / "run", evictions=make_evictions(rng, 1).iloc[:0])
    (folder / "requests.parquet").unlink()
    page = check_page(write_report(folder))
    assert "no cached block was evicted" in page.words
    assert "“requests” was not recorded" in page.words
    assert page.of("img")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "steps.parquet").write_bytes(b"PAR1 nothing"), "steps.parquet"),
        (lambda f: (f / "summary.json").write_text("{", encoding="utf-8"), "summary.json"),
        (lambda f: (f / "config.yaml").write_text("a: [", encoding="utf-8"), "config.yaml"),
        (lambda f: (f / "manifest.json").write_text('{"format_version": 99}', encoding="utf-8"), "format 99"),
        (lambda f: (f / "manifest.json").unlink(), "no results here"),
    ],
)
def test_a_damaged_folder_is_named_and_nothing_is_written(damage: Any, message: str, tmp_path: Path):
    folder = write_run(tmp_path / "run")
    damage(folder)
    with pytest.raises(ResultsError, match=message) as caught:
        write_report(folder)
    assert "\n" not in str(caught.value)
    assert not (folder / "report.html").exists()


def test_the_folder_above_a_single_run_will_do(tmp_path: Path):
    rng = np.random.default_rng(0)
    nothing = {
        "requests": make_requests(rng, 2).iloc[:0],
        "steps": make_steps(rng, 2).iloc[:0],
        "evictions": make_evictions(rng, 2).iloc[:0],
    }
    write_run(tmp_path / "exp" / "one", **nothing)
    assert write_report(tmp_path / "exp") == tmp_path / "exp" / "one" / "report.html"
    write_run(tmp_path / "exp" / "two")
    with pytest.raises(ResultsError, match="holds 2 runs; name one of them: one, two"):
        write_report(tmp_path / "exp")


def test_goals_are_for_sweeps(run_folder: Path):
    with pytest.raises(ResultsError, match="single run"):
        write_report(run_folder, goal="max:evictions")


def test_comparison_finds_what_differs(tmp_path: Path):
    config = copy.deepcopy(CONFIG)
    config["memory"]["num_gpu_blocks"] = 8000
    config["eviction"] = {"policy": "s3fifo"}
    summary = copy.deepcopy(SUMMARY)
    summary["evictions"] = 4500
    paths = [
        write_run(tmp_path / "x" / "run"),
        write_run(
            tmp_path / "y" / "run", config=config, summary=summary, steps=make_steps(np.random.default_rng(1), 0)
        ),
    ]
    found = compare(paths)
    assert found.names == ["x/run", "y/run"]
    assert {d.path: d.values for d in found.settings} == {
        "memory.num_gpu_blocks": [4000, 8000],
        "eviction.policy": [None, "s3fifo"],
    }
    assert [f.name for f in found.figures if f.differs] == ["evictions"]
    text = as_text(found)
    assert "4,500 (−50 %)" in text
    assert "hit_rate.tokens" not in text
    assert "hit_rate.tokens" in as_text(found, everything=True)
    assert json.loads(json.dumps(as_json(found)))["figures"]["evictions"] == [9000, 4500]
    page = check_page(write_comparison(found, tmp_path / "compare.html"))
    assert len(page.of("img")) == 7


def test_comparing_takes_two_runs(run_folder: Path, sweep_folder: Path):
    with pytest.raises(ResultsError, match="two runs or more"):
        compare([run_folder])
    with pytest.raises(ResultsError, match="is a sweep"):
        compare([run_folder, sweep_folder])


def test_the_same_run_twice_keeps_two_names(run_folder: Path):
    found = compare([run_folder, run_folder])
    assert len(set(found.names)) == 2
    assert "All settings are the same." in as_text(found)


@pytest.mark.parametrize(
    ("first", "value", "text"), [(2.0, 3.0, "+50 %"), (4, 2, "−50 %"), (1, 30, "×30"), (0, 5, ""), (None, 5, "")]
)
def test_change(first: Any, value: Any, text: str):
    assert change(first, value) == text


def test_a_sweep_of_another_version(tmp_path: Path):
    with pytest.raises(ResultsError, match="format 99"):
        write_report(write_sweep(tmp_path / "s", format_version=99))


def test_a_sweep_without_points(tmp_path: Path):
    folder = write_sweep(tmp_path / "s", make_points().iloc[:0])
    page = check_page(write_report(folder))
    assert "No point" in page.words


def test_large_tables_are_read_by_the_column(tmp_path: Path):
    """A table may hold a column that no figure needs, of a kind that none could use."""
    rng = np.random.default_rng(0)
    evictions = make_evictions(rng, 1000).assign(ballast=[b"\x00" * 100] * 1000)
    folder = write_run(tmp_path / "run", evictions=evictions, requests=pd.DataFrame({"request_index": [0]}))
    page = check_page(write_report(folder))
    assert "has no column" in page.words
