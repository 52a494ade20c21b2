"""A tree of prefixes over runs of tokens: how much of a prompt was seen before, without making a token.

Each edge is a run: a slice of a stream, or literal ids.  A request costs as many steps as its prompt
has runs and branch points, whatever its number of blocks, so prompts of a hundred thousand tokens
are as cheap as short ones.  The depth to which a prompt follows the tree is the longest prefix that
it shares with any earlier prompt, in tokens; a cache of blocks of B then hits ``depth // B`` blocks.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from workloads.spec import Piece, Segment, TokenIds

_IDS = -1  # stands for the stream of an edge of literal ids


class Node:
    """An edge of the tree and the point it leads to.

    Attributes:
        length: tokens of the edge.
        uses: prompts that contain it.
        first, last: numbers of the first and the latest request that contained it.
        asked: whether it was ever part of a prompt (else it is an answer that nobody has quoted yet).
        sessions: the session whose prompts contain it, or a set of several; None: no session's.
    """

    __slots__ = (
        "answers",
        "asked",
        "children",
        "first",
        "ids",
        "last",
        "length",
        "sessions",
        "start",
        "stream",
        "uses",
    )

    def __init__(
        self, stream: int, start: int, length: int, ids: npt.NDArray[np.int64] | None, number: int, *, asked: bool
    ) -> None:
        self.stream = stream
        self.start = start
        self.length = length
        self.ids = ids
        self.children: dict[Hashable, Node] | None = None
        self.answers: tuple[tuple[int, int, int], ...] | None = None
        self.uses = 1 if asked else 0
        self.first = number
        self.last = number
        self.asked = asked
        self.sessions: int | set[int] | None = None

    def had(self, session: int) -> bool:
        """Whether a prompt of this session contains it."""
        return self.sessions == session or (isinstance(self.sessions, set) and session in self.sessions)

    def remember(self, session: int) -> None:
        """A prompt of this session contains it."""
        if self.sessions is None:
            self.sessions = session
        elif isinstance(self.sessions, set):
            self.sessions.add(session)
        elif self.sessions != session:
            self.sessions = {self.sessions, session}


class Match(NamedTuple):
    """What a prompt found in the tree.

    Attributes:
        tokens: longest prefix shared with an earlier prompt.
        tokens_with_answers: the same, where earlier answers count too (all but their last token, whose
            KV no engine computes).
        tokens_of_session: longest prefix shared with an earlier prompt of the same session.
        runs: (tokens, number of the request that used them last) along the first, from the front.
    """

    tokens: int
    tokens_with_answers: int
    tokens_of_session: int
    runs: list[tuple[int, int]]


class PrefixTree:
    """Prefixes of all prompts given so far.  Different `root` keys share nothing (salts, LoRA adapters)."""

    def __init__(self) -> None:
        self.roots: dict[Hashable, Node] = {}

    def add(
        self,
        number: int,
        pieces: Sequence[Piece],
        root: Hashable = None,
        answer: tuple[int, int] | None = None,
        session: int | None = None,
    ) -> Match:
        """Look a prompt up, then put it in.

        Args:
            number: the request's number, ascending.
            pieces: the prompt, merged as `merge_pieces` leaves it.
            root: what else must be equal for anything to be shared.
            answer: stream and length of the answer, which later prompts may quote.
            session: the number of the request's session.
        """
        node = self.roots.get(root)
        if node is None:
            node = self.roots[root] = Node(0, 0, 0, None, number, asked=True)
        runs: list[tuple[int, int]] = []
        depth = session_depth = 0
        asked_depth: int | None = None  # known when the first edge that no prompt had is met
        run_tokens, run_last = 0, -1
        for index, piece in enumerate(pieces):
            literal = isinstance(piece, TokenIds)
            at, end = 0, piece.length
            while at < end:
                child = _child(node, piece, at) if literal else None
                if not literal:  # the usual case, in line: this loop is where the time goes
                    start = piece.start + at  # type: ignore[union-attr]
                    if node.children is not None:
                        stream = piece.stream  # type: ignore[union-attr]
                        child = node.children.get((stream, start) if start else stream)
                    if child is None and start == 0 and node.answers is not None:
                        child = _quoted(node, piece.stream)  # type: ignore[union-attr]
                if child is None:
                    node = _grow(node, piece, at, pieces[index + 1 :], number, session)
                    break
                common = _common(child, piece, at) if literal else min(child.length, end - at)
                if common < child.length:
                    _split(child, common)
                if not child.asked:
                    asked_depth = depth if asked_depth is None else asked_depth
                    child.asked = True
                elif asked_depth is None:
                    if child.last == run_last:
                        run_tokens += common
                    else:
                        if run_tokens:
                            runs.append((run_tokens, run_last))
                        run_tokens, run_last = common, child.last
                if session is not None:
                    if child.sessions == session or child.had(session):
                        session_depth += common
                    else:
                        child.remember(session)
                depth += common
                child.uses += 1
                child.last = number
                node = child
                at += common
            else:
                continue
            break
        if run_tokens:
            runs.append((run_tokens, run_last))
        if answer is not None and answer[1] > 1:
            node.answers = (*(node.answers or ()), (answer[0], answer[1] - 1, number))
        return Match(depth if asked_depth is None else asked_depth, depth, session_depth, runs)

    def walk(self) -> Iterator[tuple[Node, int]]:
        """(node, depth in tokens at its end) of every node that is part of a prompt, parents first."""
        stack = [(root, 0) for root in self.roots.values()]
        while stack:
            node, depth = stack.pop()
            for child in (node.children or {}).values():
                if child.asked:
                    yield child, depth + child.length
                    stack.append((child, depth + child.length))

    def check(self) -> None:
        """Assert the laws: no empty edge, a child is used no more than its parent, keys fit edges."""
        for root in self.roots.values():
            stack = [root]
            while stack:
                node = stack.pop()
                for key, child in (node.children or {}).items():
                    assert child.length > 0, f"empty edge {key}"
                    assert key == _key(child.stream, child.start, child.ids), f"key {key} is not its edge's"
                    if node is not root:
                        assert child.uses <= node.uses, f"{key}: used {child.uses} times, its parent {node.uses}"
                        assert child.last <= node.last, f"{key}: used later than its parent"
                    stack.append(child)


def _child(node: Node, piece: Piece, at: int) -> Node | None:
    """The edge that begins with this token of a literal piece, if any."""
    return node.children.get((_IDS, int(piece.ids[at]))) if node.children and isinstance(piece, TokenIds) else None


def _quoted(node: Node, stream: int) -> Node | None:
    """An answer given at this point becomes an edge when it is quoted for the first time."""
    for answer, length, number in node.answers or ():
        if answer == stream:
            child = Node(stream, 0, length, None, number, asked=False)
            _attach(node, child)
            node.answers = tuple(other for other in node.answers or () if other[0] != stream) or None
            return child
    return None


def _grow(node: Node, piece: Piece, at: int, rest: Sequence[Piece], number: int, session: int | None) -> Node:
    """Append what is new below `node`; returns the last node."""
    first: Piece = (
        TokenIds(piece.ids[at:])
        if isinstance(piece, TokenIds)
        else Segment(piece.stream, piece.start + at, piece.length - at)
    )
    for new in (first, *rest):
        if isinstance(new, TokenIds):
            child = Node(_IDS, 0, new.length, new.ids, number, asked=True)
        else:
            child = Node(new.stream, new.start, new.length, None, number, asked=True)
        child.sessions = session
        _attach(node, child)
        node = child
    return node


def _key(stream: int, start: int, ids: npt.NDArray[np.int64] | None) -> Hashable:
    """What a node's children are found by; the usual one, the begin of a stream, needs no object of its own."""
    if ids is not None:
        return (_IDS, int(ids[0]))
    return (stream, start) if start else stream


def _attach(node: Node, child: Node) -> None:
    if node.children is None:
        node.children = {}
    node.children[_key(child.stream, child.start, child.ids)] = child


def _common(child: Node, piece: Piece, at: int) -> int:
    """Tokens that an edge and a piece from `at` on have in common (the first is known to be)."""
    common = min(child.length, piece.length - at)
    if child.ids is None or not isinstance(piece, TokenIds):
        return common
    differ = np.flatnonzero(child.ids[:common] != piece.ids[at : at + common])
    return int(differ[0]) if len(differ) else common


def _split(node: Node, at: int) -> None:
    """Cut an edge in two after `at` tokens; the lower half keeps children and answers."""
    ids = node.ids[at:] if node.ids is not None else None
    lower = Node(
        node.stream, node.start + at if ids is None else 0, node.length - at, ids, node.first, asked=node.asked
    )
    lower.children, lower.answers = node.children, node.answers
    lower.uses, lower.last = node.uses, node.last
    lower.sessions = set(node.sessions) if isinstance(node.sessions, set) else node.sessions
    node.length = at
    node.ids = node.ids[:at] if node.ids is not None else None
    node.children, node.answers = None, None
    _attach(node, lower)
