"""The page of results is what the code says."""

from pathlib import Path

from sim.recording.page import results_page

PAGE = Path(__file__).parents[2] / "docs" / "results.md"


def test_docs_are_in_step():
    assert PAGE.read_text(encoding="utf-8") == results_page(), "run: kvsim schema --results > docs/results.md"
