"""Finding policies by name, a policy of one's own, and policies that break the laws."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_pool import TinyPool

from sim.errors import ConfigError, InvariantError
from sim.eviction.registry import check_policy, needs_future

OWN = '''
from sim.eviction.base import RankedPolicy

class Deepest(RankedPolicy):
    """The deepest block goes first."""

    def __init__(self, blocks, context, *, sign=-1):
        super().__init__(blocks, context)
        self.sign = sign

    def rank(self, block):
        return self.sign * self.view.depth(block)

class HandsOutUsed(Deepest):
    def victim(self):
        block = super().victim()
        return self.last_hit if hasattr(self, "last_hit") else block

    def hit(self, block):
        self.last_hit = block

class LosesOne(Deepest):
    def discard(self, block):
        super().discard(block)
        if len(self._ranked):
            lost = super().victim()
            self._keyed.discard(lost.block_id)

class ForgetsInOrder(Deepest):
    def order(self):
        return super().order()[1:]

class Fails(Deepest):
    def rank(self, block):
        return 1 / self.view.hits(block)

class NotAQueue:
    pass
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with policies in the working folder; its name."""
    name = f"own_policies_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return name


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("lfru", "did you mean"),
        ("LRU-K", "did you mean lru_k"),
        ("belay", "did you mean belady"),
        ("qqqq", "there are lru, fifo"),
        ("no_such_module_here:Queue", "cannot import 'no_such_module_here'"),
    ],
)
def test_an_unknown_policy_comes_with_the_nearest_names(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint) as caught:
        check_policy(name)
    assert "\n" not in str(caught.value)


def test_settings_are_looked_at_by_name_and_value() -> None:
    check_policy("slru", {"protected_share": 0.5})
    with pytest.raises(ConfigError, match="no such setting; did you mean protected_share"):
        check_policy("slru", {"protect_share": 0.5})
    with pytest.raises(ConfigError, match="it has none"):
        check_policy("lru", {"k": 2})
    with pytest.raises(ConfigError, match="protected_share is 2"):
        TinyPool("slru", 2, protected_share=2)


def test_only_the_optimum_sees_the_future() -> None:
    assert needs_future("belady")
    assert not needs_future("arc")
    from sim.eviction.registry import make_eviction

    with pytest.raises(ConfigError, match="needs a workload whose future is known"):
        make_eviction("belady", num_blocks=3, hash_block_size=2, clock=lambda: 0.0)


def test_a_policy_of_ones_own(own: str) -> None:
    world = TinyPool(f"{own}:Deepest", 3)
    world.serve(0, 1)
    world.serve(5)
    world.serve(6)
    assert world.cached(0)
    assert not world.cached(0, 1)
    world = TinyPool(f"{own}:Deepest", 3, sign=1)
    world.serve(0, 1)
    world.serve(5)
    world.serve(6)
    assert not world.cached(0)


def test_a_class_that_is_missing_or_no_queue(own: str) -> None:
    with pytest.raises(ConfigError, match=r"has no class 'Depest'; it has .*Deepest"):
        check_policy(f"{own}:Depest")
    with pytest.raises(ConfigError, match="is no free queue: it lacks popleft_n"):
        check_policy(f"{own}:NotAQueue")


def test_a_block_in_use_is_never_handed_out(own: str) -> None:
    world = TinyPool(f"{own}:HandsOutUsed", 3)
    world.serve(0)
    world.serve(1)
    world.serve(2)
    world.begin(0)
    with pytest.raises(InvariantError, match=r"law 4: eviction policy .*HandsOutUsed.* handed out block 1, which 1"):
        world.serve(3)


def test_a_lost_block_stops_the_run_at_once(own: str) -> None:
    world = TinyPool(f"{own}:LosesOne", 3)
    world.serve(0)
    world.serve(1)
    with pytest.raises(InvariantError, match=r"law 1: eviction policy .*LosesOne.* says that 1 blocks are free, but 2"):
        world.serve(0)


def test_a_block_missing_from_the_order_is_found_by_the_check(own: str) -> None:
    world = TinyPool(f"{own}:ForgetsInOrder", 3)
    world.serve(0)
    with pytest.raises(InvariantError, match="law 1"):
        world.pool.check()


def test_an_error_in_the_policys_code_names_it(own: str) -> None:
    world = TinyPool(f"{own}:Fails", 3)
    with pytest.raises(InvariantError, match=r"Fails': append_n\(\) failed: ZeroDivisionError: division by zero"):
        world.serve(0)
