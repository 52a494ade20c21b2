"""Whole engines on random tiny worlds: all laws after every half step, and every request ends exactly once."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_worlds import engines, play, scripts


@settings(max_examples=350, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(engine=engines(), script=scripts(), asynchronous=st.booleans())
def test_every_law_holds_and_every_request_ends(engine, script, asynchronous):
    play(engine, script, asynchronous=asynchronous)


@pytest.mark.long
@settings(max_examples=20000, deadline=None, suppress_health_check=list(HealthCheck))
@given(engine=engines(), script=scripts(), asynchronous=st.booleans())
def test_every_law_holds_and_every_request_ends_for_long(engine, script, asynchronous):
    play(engine, script, asynchronous=asynchronous)
