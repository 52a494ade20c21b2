"""The reference's 420 recorded plans, planned again."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from sim.core.planning import replay_plan

PLANS = Path(__file__).parents[1] / "golden" / "plans.json.gz"
RECORDED = json.loads(gzip.decompress(PLANS.read_bytes()))["plans"]


@pytest.mark.parametrize("model", sorted({plan["model"] for plan in RECORDED}))
def test_every_field_and_every_refusal_is_the_references(model: str) -> None:
    cases = [plan for plan in RECORDED if plan["model"] == model]
    assert len(cases) == 60
    for plan in cases:
        assert replay_plan(plan) == plan
