"""Which engines the fast path covers."""

from __future__ import annotations

from sim.core.scheduler_config import SchedulerConfig


def supports(config: SchedulerConfig, *, eviction_policy: str = "lru", real_hashes: bool = False) -> str | None:
    """Why the fast path does not cover an engine, in words for the run's summary; None if it does.

    Args:
        config: the engine.
        eviction_policy: name of the free queue's policy.
        real_hashes: KV events with real block hashes are asked for.
    """
    if len(config.groups) != 1:
        return f"the model has {len(config.groups)} KV cache groups, it covers one"
    if config.groups[0].kind != "full":
        return "the model's layers attend to a sliding window, it covers full attention"
    if eviction_policy != "lru":
        return f"the eviction policy is {eviction_policy}, it covers lru"
    if real_hashes:
        return "KV events with real hashes are asked for"
    return None
