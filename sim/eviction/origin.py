"""Who sent a request, apart from all that concerns blocks, so that it costs next to nothing to import."""

from __future__ import annotations

from typing import NamedTuple


class Origin(NamedTuple):
    """Who sent a request: its category, session and turn (from 0)."""

    category: str = ""
    session: str | None = None
    turn: int = 0
