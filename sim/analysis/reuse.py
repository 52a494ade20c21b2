"""How much of a workload could be reused: an infinite prefix cache, and the room that finite ones would need.

Requests are taken one after another in the order in which the workload gives them; every prompt is
cached whole as soon as it has been seen.  No engine, no clock: a bound, and what the trace itself
says.  Definitions of all shares are in `DEFINITIONS`, by the names used in the result.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.analysis.prefix_tree import PrefixTree
from workloads.spec import LoRA, MultiModalItem, Piece, RequestSpec, Segment, TokenIds, merge_pieces, stream_id

Ints = npt.NDArray[np.int64]

DEFINITIONS = {
    "tokens": "prompt tokens in the longest prefix shared with any earlier prompt / all prompt tokens",
    "full_blocks": "full blocks of the prompt inside that prefix / all full blocks of all prompts "
    "(a partial last block counts nowhere)",
    "blocks": "the same, where a partial last block counts as a block, hit if the whole prompt was seen before",
    "engine_tokens": "prompt tokens that an engine would not compute: full blocks inside that prefix, and at least "
    "one token of each prompt is always computed / all prompt tokens",
    "tokens_with_answers": "as tokens, where earlier answers are cached too (all but their last token), "
    "so that the next turn of a chat finds them",
    "cold": "over all requests, from an empty cache",
    "last_half": "over the second half of the requests (by number), the cache filled by the first half",
    "within_sessions": "hit tokens that an earlier prompt of the same session had / all prompt tokens",
    "between_sessions": "hit tokens that only prompts of other sessions had / all prompt tokens",
    "without_session": "hit tokens of requests that belong to no session / all prompt tokens",
    "distance_tokens": "for a hit run: distinct prompt tokens used after the request that used it last; an LRU cache "
    "needs about this room, and the prompt's own, to hit it",
    "distance_requests": "for a hit run: how many requests ago it was used last (1 = the one before)",
    "saved_tokens": "tokens of a stretch of prompts, times the prompts that have it less one",
}

MAX_LONE_ANSWERS = 500_000
BLOCK_SIZES = (16, 32, 64, 128, 256, 512)


class Reuse:
    """Collects the reuse of a workload, request by request.

    Takes about a hundred bytes a request and a node a distinct run of tokens; cost grows with the
    runs of a prompt, not with its tokens.
    """

    def __init__(self) -> None:
        self.tree = PrefixTree()
        self._sessions: dict[str, int] = {}
        self._tokens = array("q")
        self._hit = array("q")
        self._hit_with_answers = array("q")
        self._within = array("q")
        self._has_session = array("b")
        self._distance = array("q")
        self._distance_requests = array("q")
        self._distance_weight = array("q")
        self._recency = RecencySums()

    def add(self, spec: RequestSpec) -> int:
        """Take the next request; returns its prompt tokens that an earlier prompt had."""
        number = len(self._tokens)
        pieces = keyed_pieces(spec.prompt, spec.mm_items)
        root = root_key(spec.lora, spec.cache_salt)
        session = None if spec.session is None else self._sessions.setdefault(spec.session, len(self._sessions))
        # beyond a limit only answers within sessions are kept for quoting: others would fill the memory
        quotable = number < MAX_LONE_ANSWERS or session is not None
        answer = (spec.answer_stream, spec.output_tokens) if quotable else None
        match = self.tree.add(number, pieces, root, answer, session)
        tokens = spec.prompt_tokens
        self._tokens.append(tokens)
        self._hit.append(match.tokens)
        self._hit_with_answers.append(match.tokens_with_answers)
        self._within.append(match.tokens_of_session)
        self._has_session.append(session is not None)
        for length, last in match.runs:
            self._distance.append(self._recency.after(last))
            self._distance_requests.append(number - last)
            self._distance_weight.append(length)
        for length, last in match.runs:
            self._recency.move(length, last, number)
        self._recency.move(tokens - match.tokens, None, number)
        return match.tokens

    def result(self, block_size: int, block_sizes: Sequence[int] = BLOCK_SIZES) -> dict[str, Any]:
        """All figures as plain numbers, shares as fractions of 1 (None where nothing is there to share)."""
        tokens, hit = _ints(self._tokens), _ints(self._hit)
        half = len(tokens) // 2
        total = int(tokens.sum())
        within = int(_ints(self._within).sum())
        in_session = np.frombuffer(self._has_session, dtype=np.int8).astype(bool)
        out: dict[str, Any] = {
            "block_size": block_size,
            "cold": self._shares(block_size, 0),
            "last_half": self._shares(block_size, half),
            "by_block_size": [
                {"block_size": size, "cold": self._shares(size, 0), "last_half": self._shares(size, half)}
                for size in sorted({*block_sizes, block_size})
            ],
            "within_sessions": share(within, total),
            "between_sessions": share(int(hit[in_session].sum()) - within, total),
            "without_session": share(int(hit[~in_session].sum()), total),
            "requests_without_hit": int(np.count_nonzero(hit == 0)),
            "requests_seen_whole": int(np.count_nonzero((hit == tokens) & (tokens > 0))),
        }
        out["distance"] = self._distances()
        out["definitions"] = DEFINITIONS
        return out

    def hit_and_prompt_tokens(self) -> tuple[Ints, Ints]:
        """Per request in order: tokens of the prompt seen before, tokens of the prompt."""
        return _ints(self._hit), _ints(self._tokens)

    def distances(self) -> tuple[Ints, Ints]:
        """Of every hit run: `distance_tokens` and its length in tokens."""
        return _ints(self._distance), _ints(self._distance_weight)

    def popularity(self) -> dict[str, Any]:
        """How prompts share: tokens by the number of prompts that have them, and the most common beginnings."""
        bounds = (1, 2, 3, 11, 101, 1001)
        names = ("1", "2", "3-10", "11-100", "101-1,000", "over 1,000")
        distinct, uses = [0] * len(bounds), [0] * len(bounds)
        for node, _ in self.tree.walk():
            at = int(np.searchsorted(bounds, node.uses, side="right")) - 1
            distinct[at] += node.length
            uses[at] += node.length * node.uses
        begins = (child for root in self.tree.roots.values() for child in (root.children or {}).values())
        firsts = sorted((child.uses for child in begins if child.asked), reverse=True)
        count = max(len(self._tokens), 1)
        return {
            "by_uses": [
                {"prompts": name, "distinct_tokens": d, "prompt_tokens": u}
                for name, d, u in zip(names, distinct, uses, strict=True)
            ],
            "distinct_tokens": sum(distinct),
            "distinct_first_tokens": len(firsts),
            "requests_with_the_commonest_first_token": share(sum(firsts[:1]), count),
            "requests_with_the_10_commonest_first_tokens": share(sum(firsts[:10]), count),
        }

    def largest_prefixes(self, count: int = 10) -> list[dict[str, Any]]:
        """The stretches of prompts that save the most tokens: where they stand, how long, how often, since when."""
        best = sorted(
            ((node.length * (node.uses - 1), depth, node) for node, depth in self.tree.walk() if node.uses > 1),
            key=lambda item: (-item[0], item[1], item[2].first),
        )[:count]
        return [
            {
                "saved_tokens": saved,
                "from_token": depth - node.length,
                "to_token": depth,
                "prompts": node.uses,
                "first_request": node.first,
            }
            for saved, depth, node in best
        ]

    def longest_shared(self, count: int = 5) -> list[dict[str, Any]]:
        """The longest prefixes that at least two prompts share."""
        ends = [
            (depth, node)
            for node, depth in self.tree.walk()
            if node.uses > 1 and not any(child.uses > 1 for child in (node.children or {}).values())
        ]
        ends.sort(key=lambda item: (-item[0], item[1].first))
        return [{"tokens": depth, "prompts": node.uses, "first_request": node.first} for depth, node in ends[:count]]

    def _shares(self, block_size: int, begin: int) -> dict[str, Any]:
        tokens, hit = _ints(self._tokens)[begin:], _ints(self._hit)[begin:]
        with_answers = _ints(self._hit_with_answers)[begin:]
        full = hit // block_size
        partial = (hit == tokens) & (tokens % block_size > 0)
        engine = np.minimum(hit, np.maximum(tokens - 1, 0)) // block_size * block_size
        counts = {
            "tokens": (int(hit.sum()), int(tokens.sum())),
            "full_blocks": (int(full.sum()), int((tokens // block_size).sum())),
            "blocks": (int(full.sum() + partial.sum()), int((-(-tokens // block_size)).sum())),
            "engine_tokens": (int(engine.sum()), int(tokens.sum())),
            "tokens_with_answers": (int(with_answers.sum()), int(tokens.sum())),
        }
        return {name: {"share": share(*pair), "hit": pair[0], "of": pair[1]} for name, pair in counts.items()}

    def _distances(self) -> dict[str, Any]:
        weight = _ints(self._distance_weight)
        return {
            "hit_tokens": int(weight.sum()),
            "distance_tokens": _quantiles(_ints(self._distance), weight),
            "distance_requests": _quantiles(_ints(self._distance_requests), weight),
        }


class RecencySums:
    """Tokens by the number of the request that used them last, and their sum beyond any number: O(log n) each.

    A Fenwick tree (Fenwick, "A new data structure for cumulative frequency tables", 1994) that grows.
    """

    def __init__(self) -> None:
        self._size = 1024
        self._sums = [0] * (self._size + 1)
        self._total = 0

    def move(self, tokens: int, last: int | None, now: int) -> None:
        """These tokens were last used by `last` (None: never) and are used by `now`."""
        if tokens <= 0:
            return
        while now >= self._size:  # the new root of the doubled tree covers all that is there
            self._sums += [0] * self._size
            self._sums[2 * self._size] = self._total
            self._size *= 2
        if last is not None:
            self._change(last, -tokens)
        self._change(now, tokens)

    def after(self, number: int) -> int:
        """Tokens whose last use came after that request."""
        at, before = number + 1, 0
        while at > 0:
            before += self._sums[at]
            at &= at - 1
        return self._total - before

    def _change(self, number: int, tokens: int) -> None:
        self._total += tokens
        at = number + 1
        while at <= self._size:
            self._sums[at] += tokens
            at += at & -at


def keyed_pieces(prompt: tuple[Piece, ...], mm_items: Sequence[MultiModalItem]) -> Sequence[Piece]:
    """A prompt in which each item stands as itself: the same image is the same run, another one another.

    A block that overlaps an item has its identifier and place in its key, which comes to the same.
    """
    if not mm_items:
        return prompt
    out: list[Piece] = []
    at = 0
    items = iter(mm_items)
    item = next(items, None)
    for piece in prompt:
        end = at + piece.length
        begin = at
        while begin < end:
            if item is None or item.offset >= end:
                out.append(_slice(piece, begin - at, end - begin))
                break
            if begin < item.offset:
                out.append(_slice(piece, begin - at, item.offset - begin))
                begin = item.offset
            upto = min(item.offset + item.length, end)
            out.append(Segment(stream_id("mm", item.identifier), begin - item.offset, upto - begin))
            begin = upto
            if upto == item.offset + item.length:
                item = next(items, None)
        at = end
    return merge_pieces(out)


def root_key(lora: LoRA | None, cache_salt: str | None) -> Hashable:
    """What must be equal for anything to be shared."""
    return (lora.name, lora.path) if lora else None, cache_salt


def share(part: int, whole: int) -> float | None:
    """A fraction, None when there is nothing to be a part of."""
    return part / whole if whole else None


def _slice(piece: Piece, start: int, length: int) -> Piece:
    if isinstance(piece, TokenIds):
        return TokenIds(piece.ids[start : start + length])
    return Segment(piece.stream, piece.start + start, length)


def _ints(values: array[int]) -> Ints:
    return np.frombuffer(values, dtype=np.int64) if len(values) else np.empty(0, dtype=np.int64)


def _quantiles(values: Ints, weight: Ints) -> dict[str, int] | None:
    """Quantiles weighted by tokens."""
    if not len(values):
        return None
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(weight[order])
    out = {}
    for name, part in (("p10", 0.1), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        at = int(np.searchsorted(cumulative, part * cumulative[-1]))
        out[name] = int(values[order][min(at, len(values) - 1)])
    out["max"] = int(values.max())
    return out
