"""Why a prefix cache hits little or nothing: what would have to be otherwise for more to hit.

Each cause is counted in requests or tokens, and comes with a sentence that names the remedy.  Like
`sim.analysis.reuse` this is about the workload: an infinite cache, requests one after another.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sim.analysis.prefix_tree import PrefixTree
from sim.analysis.reuse import keyed_pieces, root_key, share
from workloads.spec import Piece, RequestSpec, TokenIds

MAX_REQUESTS = 500_000
WINDOW = 16  # tokens that must be equal in a row for literal ids to count as the same content
KEY_CAUSES = ("cache_salts", "lora_adapters", "images", "salts_lora_and_images")
SAMPLE = 8  # of all windows, one in so many is looked at, chosen by its content
_BASE = np.uint64(0x9E3779B97F4A7C15)


class Cause(NamedTuple):
    """One answer to "why so few hits?".

    Attributes:
        name: its key.
        share: tokens that this cause keeps from hitting / all prompt tokens; for `requests` causes the
            share of requests.
        text: what it is, in a sentence.
    """

    name: str
    share: float
    text: str


class ContentSeen:
    """Which tokens of a prompt were seen before anywhere, not only at the beginning.

    Slices of streams exactly; literal ids by a sample of windows of `WINDOW` tokens, scaled up.
    """

    def __init__(self) -> None:
        self._spans: dict[int, list[int]] = {}  # stream -> begins and ends of what was seen, ascending, disjoint
        self._windows: set[int] = set()

    def add(self, pieces: Iterable[Piece]) -> int:
        """Tokens seen in earlier prompts; the prompt itself counts from then on."""
        seen = 0
        new: list[tuple[int, int, int]] = []
        sampled: list[npt.NDArray[np.uint64]] = []
        for piece in pieces:
            if isinstance(piece, TokenIds):
                windows = sample_windows(piece.ids)
                if len(windows):
                    known = sum(window in self._windows for window in windows.tolist())
                    seen += round(piece.length * known / len(windows))
                    sampled.append(windows)
                continue
            start, end = piece.start, piece.start + piece.length
            found = self._overlap(piece.stream, start, end)
            seen += found
            if found < piece.length:
                new.append((piece.stream, start, end))
        for stream, start, end in new:
            self._cover(stream, start, end)
        for windows in sampled:
            self._windows.update(windows.tolist())
        return seen

    def _overlap(self, stream: int, start: int, end: int) -> int:
        spans = self._spans.get(stream)
        if not spans:
            return 0
        at = bisect_right(spans, start) // 2 * 2
        total = 0
        while at < len(spans) and spans[at] < end:
            total += max(0, min(end, spans[at + 1]) - max(start, spans[at]))
            at += 2
        return total

    def _cover(self, stream: int, start: int, end: int) -> None:
        spans = self._spans.get(stream)
        if spans is None:
            self._spans[stream] = [start, end]
            return
        low = bisect_left(spans, start)
        high = bisect_right(spans, end)
        edges = ([start] if low % 2 == 0 else []) + ([end] if high % 2 == 0 else [])
        spans[low:high] = edges


def sample_windows(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Hashes of those windows of `WINDOW` ids whose hash is divisible by `SAMPLE` (at least the first window)."""
    count = len(ids) - WINDOW + 1
    if count < 1:
        return np.empty(0, dtype=np.uint64)
    values = ids.astype(np.uint64)
    hashes = np.zeros(count, dtype=np.uint64)
    for offset in range(WINDOW):
        hashes = hashes * _BASE + values[offset : offset + count]
    hashes ^= hashes >> np.uint64(29)
    hashes *= np.uint64(0xBF58476D1CE4E5B9)
    hashes ^= hashes >> np.uint64(32)
    chosen = hashes[hashes % np.uint64(SAMPLE) == 0]
    return chosen if len(chosen) else hashes[:1]


def key_effects(specs: Iterable[RequestSpec], features: Sequence[str]) -> dict[str, int]:
    """Prefix tokens that would be shared if a part of the block keys did not count, by that part.

    Args:
        specs: the workload, once more.
        features: of ``salts``, ``lora``, ``images``; ``keys`` (all three) is always in the result.
    """
    views: dict[str, Callable[[RequestSpec], tuple[Sequence[Piece], Hashable]]] = {
        "salts": lambda s: (keyed_pieces(s.prompt, s.mm_items), root_key(s.lora, None)),
        "lora": lambda s: (keyed_pieces(s.prompt, s.mm_items), root_key(None, s.cache_salt)),
        "images": lambda s: (s.prompt, root_key(s.lora, s.cache_salt)),
        "keys": lambda s: (s.prompt, None),
    }
    chosen = [*features, "keys"] if len(features) != 1 else [*features]
    trees = {name: PrefixTree() for name in chosen}
    out = dict.fromkeys(chosen, 0)
    for number, spec in enumerate(specs):
        for name, tree in trees.items():
            pieces, root = views[name](spec)
            out[name] += tree.add(number, pieces, root).tokens
    if len(features) == 1:
        out["keys"] = out[features[0]]
    return out


def causes(
    tokens: npt.NDArray[np.int64],
    hit: npt.NDArray[np.int64],
    block_size: int,
    seen_anywhere: int | None,
    effects: dict[str, int] | None,
) -> list[Cause]:
    """What keeps tokens from hitting, the largest first.

    Args:
        tokens, hit: prompt tokens of every request, and those in a prefix seen before.
        block_size: tokens of a block.
        seen_anywhere: prompt tokens that stood anywhere in an earlier prompt; None = not counted.
        effects: what `key_effects` gave; None = no request has salts, LoRA or images.
    """
    total, count = int(tokens.sum()), len(tokens)
    if not total:
        return []
    out: list[Cause] = []

    def add(name: str, part: int, whole: int, text: str) -> None:
        if part > 0:
            out.append(Cause(name, part / whole, text))

    full = hit // block_size * block_size
    usable = np.minimum(hit, np.maximum(tokens - 1, 0)) // block_size * block_size
    base = int(hit.sum())
    different = int(np.count_nonzero((hit == 0) & (tokens > 0)))
    never = total - (seen_anywhere if seen_anywhere is not None else base)
    add(
        "different_first_token",
        different,
        count,
        f"{different:,} of {count:,} requests begin with a token with which no earlier request (of the same salt and "
        "LoRA) begins: whatever follows, nothing of them can hit",
    )
    add("never_seen", never, total, f"{never:,} prompt tokens are new: no earlier prompt has them at all")
    if seen_anywhere is not None:
        in_front = max(base, (effects or {}).get("keys", 0))
        elsewhere = max(seen_anywhere - in_front, 0)
        add(
            "behind_another_beginning",
            elsewhere,
            total,
            f"{elsewhere:,} prompt tokens stand in earlier prompts too, but behind a different beginning: a prefix "
            "cache cannot use them (put what is shared first, what changes last)",
        )
    short = int(np.count_nonzero((tokens < block_size) & (tokens > 0)))
    add(
        "prompt_shorter_than_block",
        short,
        count,
        f"{short:,} of {count:,} prompts are shorter than a block of {block_size} tokens: they have no block to hit",
    )
    within = (hit > 0) & (hit < block_size)
    cut = int(np.count_nonzero(within))
    add(
        "prefix_shorter_than_block",
        cut,
        count,
        f"{cut:,} of {count:,} requests share a beginning, but one shorter than a block of {block_size} tokens "
        f"(on average {float(hit[within].mean()) if cut else 0:.0f} tokens): only smaller blocks would hit",
    )
    lost = int((hit - full).sum())
    add(
        "block_granularity",
        lost,
        total,
        f"{lost:,} shared prefix tokens stand in a block that is not shared whole (blocks of {block_size})",
    )
    last = int((full - usable).sum())
    add(
        "last_token_computed",
        last,
        total,
        f"{last:,} tokens stand in the last block of prompts seen whole: an engine always computes at least one token, "
        "so that block cannot hit",
    )
    names = {
        "salts": ("cache_salts", "cache salts keep tenants apart"),
        "lora": ("lora_adapters", "LoRA adapters are part of every block's key"),
        "images": ("images", "the text is equal but the images differ"),
        "keys": ("salts_lora_and_images", "salts, LoRA adapters and images together"),
    }
    for name, value in (effects or {}).items():
        if name == "keys" and len(effects or {}) == 2:
            continue
        kind, text = names[name]
        gain = value - base
        add(
            kind,
            gain,
            total,
            f"{text}: without them {gain:,} more prompt tokens would be shared ({value / total:.1%} instead of "
            f"{base / total:.1%})",
        )
    return sorted(out, key=lambda cause: -cause.share)


def headline(tokens: npt.NDArray[np.int64], hit: npt.NDArray[np.int64], block_size: int, found: list[Cause]) -> str:
    """The answer in one sentence."""
    total = int(tokens.sum())
    usable = int((np.minimum(hit, np.maximum(tokens - 1, 0)) // block_size * block_size).sum())
    part = share(usable, total)
    if part is None:
        return "There is no prompt token, so there is nothing to hit."
    if usable == 0:
        ordered = sorted(found, key=lambda cause: (cause.name not in KEY_CAUSES, -cause.share))
        reasons = [cause.text for cause in ordered if cause.name != "never_seen"][:2]
        if len(tokens) == 1:
            reasons = ["there is only one request"]
        return f"0 % of the prompt tokens can hit, even with an infinite cache: {'; '.join(reasons)}."
    return (
        f"Up to {part:.1%} of the prompt tokens can hit with an infinite cache and blocks of {block_size}; "
        "an engine that shows less evicts too early, counts otherwise, or meets the requests before their prefix is "
        "computed."
    )


def as_rows(found: list[Cause]) -> list[dict[str, Any]]:
    """Causes as plain objects."""
    return [cause._asdict() for cause in found]
