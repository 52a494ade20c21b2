"""The literal step of the fast path reproduces every recording of one full-attention group, field by field."""

import pytest
from fast_replay import GOLDEN, names

from sim.fast.player import FastPlayer
from sim.parity.verify import verify_file


def assert_equal(name, *, check):
    outcome = verify_file(GOLDEN / f"{name}.json.gz", FastPlayer, check=check)
    assert outcome.difference is None, f"{name}: {outcome.difference}"
    return outcome.compared


@pytest.mark.parametrize("name", [*names("steps"), *names("reports"), *names("async")])
def test_no_field_differs_and_every_law_holds_after_every_step(name):
    assert assert_equal(name, check=True) > 0


@pytest.mark.long
@pytest.mark.parametrize("name", names("large"))
def test_long_runs_agree_at_every_checkpoint(name):
    assert assert_equal(name, check=False) > 1000
