"""Random scenarios recorded from vLLM for this project: both engines, all laws."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.fast.player import FastPlayer
from sim.fast.support import supports
from sim.parity.players import ReferencePlayer
from sim.parity.verify import verify_file

FILES = sorted((Path(__file__).parents[1] / "recorded").glob("*.json.gz"))


def test_they_are_there():
    assert len(FILES) == 52


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_no_field_differs_on_either_engine(file):
    outcome = verify_file(file, ReferencePlayer)
    assert outcome.difference is None, str(outcome.difference)
    assert outcome.compared > 0
    fast = verify_file(file, FastPlayer, supports=supports)
    assert fast.difference is None, str(fast.difference)
    assert fast.not_covered is not None or fast.compared == outcome.compared
