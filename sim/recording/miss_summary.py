"""The figures of misses and of evictions' costs, which a summary has with `recording.misses: true`."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sim.recording.key_variants import KINDS
from sim.recording.miss_tracker import CAUSES, MissTracker

MEANINGS = {
    "never_seen": "no request had this block's key before, under these tokens or (as far as cached) others",
    "key_differs": "the same tokens were cached at that moment, but their key says another image, LoRA adapter or salt",
    "evicted": "it had been cached and was evicted; `evicted_row` names the eviction",
    "preempted": "this very request had computed it, lost it by preemption, and comes back",
    "not_computed_yet": "a running request had missed it too and had not scheduled it yet",
    "unreachable": "it was cached, but behind a block that missed (or, with several KV cache groups, one of them had "
    "not kept what it needs)",
    "not_kept": "it had been computed, but a sliding window gives keys only to what a later request is likely to need",
    "cap": "it ends with the last token asked for, which is always computed; its content was known",
}
"""Cause → what it means.  The first that fits counts, in this order: cap, unreachable, preempted, not_computed_yet,
evicted, not_kept, key_differs, never_seen; cap leaves key_differs and never_seen alone."""

_DIFFERS = {
    "image": "without its images",
    "lora": "without its LoRA adapter",
    "salt": "without its cache salt",
    "several": "only without two or three of image, adapter and salt",
}


class Costs(Protocol):
    """Columns of the table ``eviction_costs``."""

    @property
    def recomputed_tokens(self) -> npt.NDArray[np.int64]:
        """Of each row."""

    @property
    def next_admission(self) -> npt.NDArray[np.int64]:
        """Of each row; the number of admissions where none came."""

    @property
    def better_victim(self) -> npt.NDArray[np.bool_]:
        """Of each row."""


def miss_definitions() -> dict[str, str]:
    """Dotted names of the figures to their definitions, with the unit in front."""
    found = {
        "misses.asked_blocks": "[blocks] full blocks looked up, over all admissions; an admission after a preemption "
        "looks up prompt and answer so far",
        "misses.hit_blocks": "[blocks] of these, found",
        "misses.missed_blocks": "[blocks] of these, not found: the sum over the causes",
        "misses.first_asked_blocks": "[blocks] full blocks looked up by first admissions",
        "misses.first_hit_blocks": "[blocks] of these, found; over first_asked_blocks it is hit_rate.full_blocks",
    }
    for cause, text in MEANINGS.items():
        found[f"misses.by_cause.{cause}"] = f"[blocks] missed blocks; {text}"
    found |= {f"misses.share.{cause}": f"[share] of missed blocks; {text}" for cause, text in MEANINGS.items()}
    for kind, text in _DIFFERS.items():
        found[f"misses.key_differs.{kind}"] = f"[blocks] of by_cause.key_differs: would have been found {text}"
    return found | {
        "eviction_costs.evictions": "[blocks] evicted blocks",
        "eviction_costs.wanted_again": "[blocks] of these, the content was looked up by a later admission",
        "eviction_costs.wanted_again_share": "[share] wanted_again / evictions",
        "eviction_costs.costly": "[blocks] evictions that an admission missed something because of",
        "eviction_costs.costly_share": "[share] costly / evictions",
        "eviction_costs.recomputed_tokens": "[tokens] tokens that admissions did not find because of evictions: missed "
        "blocks by cause evicted or preempted, and unreachable ones behind them",
        "eviction_costs.regretted": "[blocks] costly evictions at which a block stayed free whose content was wanted "
        "later, or never",
        "eviction_costs.regret_share": "[share] regretted / evictions",
        "eviction_costs.regretted_tokens": "[tokens] recomputed_tokens of regretted evictions",
    }


def miss_figures(tracker: MissTracker, costs: Costs) -> dict[str, Any]:
    """The groups `misses` and `eviction_costs` of the summary."""
    missed = int(tracker.missed_blocks.sum())
    tokens, evictions = costs.recomputed_tokens, len(costs.recomputed_tokens)
    costly = int(np.count_nonzero(tokens))
    wanted = int(np.count_nonzero(costs.next_admission < tracker.admissions))
    regretted = int(np.count_nonzero(costs.better_victim))
    by_cause = dict(zip(CAUSES, tracker.missed_blocks.tolist(), strict=True))
    return {
        "misses": {
            "asked_blocks": tracker.asked_blocks,
            "hit_blocks": tracker.hit_blocks,
            "missed_blocks": missed,
            "first_asked_blocks": tracker.first_asked_blocks,
            "first_hit_blocks": tracker.first_hit_blocks,
            "by_cause": by_cause,
            "share": {cause: _share(blocks, missed) for cause, blocks in by_cause.items()},
            "key_differs": dict(zip(KINDS, tracker.differing_blocks.tolist(), strict=True)),
        },
        "eviction_costs": {
            "evictions": evictions,
            "wanted_again": wanted,
            "wanted_again_share": _share(wanted, evictions),
            "costly": costly,
            "costly_share": _share(costly, evictions),
            "recomputed_tokens": int(tokens.sum()),
            "regretted": regretted,
            "regret_share": _share(regretted, evictions),
            "regretted_tokens": int(tokens[costs.better_victim].sum()),
        },
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
