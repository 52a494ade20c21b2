"""Every recording of the reference, replayed with all laws checked on the way."""

from __future__ import annotations

import pytest
from recording_files import GOLDEN, names

from sim.parity.verify import verify_file

SMALL = [*names("steps"), *names("reports"), *names("async"), "hashes", "plans"]
LARGE = names("large")
QUICK = "large/large-priority-1"


def assert_equal(name: str, *, check: bool) -> int:
    outcome = verify_file(GOLDEN / f"{name}.json.gz", check=check)
    assert outcome.difference is None, f"{name}: {outcome.difference}"
    return outcome.compared


@pytest.mark.parametrize("name", SMALL)
def test_no_field_differs_and_every_law_holds_after_every_step(name):
    assert assert_equal(name, check=True) > 0


def test_a_long_run_agrees_at_every_checkpoint():
    assert assert_equal(QUICK, check=False) > 1000


@pytest.mark.long
@pytest.mark.parametrize("name", LARGE)
def test_long_runs_agree_at_every_checkpoint(name):
    assert assert_equal(name, check=False) > 1000
