"""Exact times on a clock that only knows delays."""

from hypothesis import given
from hypothesis import strategies as st

from sim.engine.clock import At, Clock

times = st.floats(min_value=0.0, max_value=1e9, allow_nan=False)


@given(times, times)
def test_an_event_happens_at_the_exact_time(now, at):
    clock = Clock(now)
    At(clock, at)
    clock.run()
    assert clock.now == max(now, at)


def test_late_comes_after_everything_at_that_instant():
    clock = Clock()
    order = []
    At(clock, 1.0, late=True).callbacks.append(lambda _: order.append("late"))
    At(clock, 1.0).callbacks.append(lambda _: order.append("first"))
    clock.timeout(1.0).callbacks.append(lambda _: order.append("second"))
    clock.run()
    assert order == ["first", "second", "late"]
