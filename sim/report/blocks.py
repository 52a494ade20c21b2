"""The pieces a page is built of; `templates/parts.html.j2` says how each of them looks."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from sim.report.embed import Rendered


class Card(NamedTuple):
    """One number that matters: its name, the number in words, a remark, and its definition."""

    label: str
    value: str
    extra: str = ""
    what: str = ""


class Cell(NamedTuple):
    """One cell of a table; `swatch` is a colour in the light and in the dark theme."""

    text: str
    number: bool = False
    style: str = ""
    swatch: tuple[str, str] | None = None


class Row(NamedTuple):
    """A row; the first cell is its name.  Styles: 'group' (a heading of one cell), 'best'."""

    cells: list[Cell]
    style: str = ""


class Shown(NamedTuple):
    """A rendered figure and how much room it gets."""

    name: str
    sentence: str
    alt: str
    light: str
    dark: str
    width: int
    height: int
    wide: bool


def shown(rendered: Rendered, wide: bool = False) -> Shown:
    """The figure for the page; `wide` takes the whole row."""
    r = rendered
    return Shown(r.name, r.sentence, r.alt, r.light, r.dark, r.width, r.height, wide)


@dataclass(frozen=True)
class Cards:
    """A grid of numbers."""

    kind: ClassVar[str] = "cards"
    cards: list[Card]


@dataclass(frozen=True)
class Figures:
    """A grid of figures."""

    kind: ClassVar[str] = "figures"
    figures: list[Shown]


@dataclass(frozen=True)
class Table:
    """A table; `folded` shows only its caption until it is opened."""

    kind: ClassVar[str] = "table"
    caption: str
    head: list[Cell]
    rows: list[Row]
    folded: bool = False

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.head) or max((len(r.cells) for r in self.rows), default=1)


@dataclass(frozen=True)
class Notes:
    """Remarks that the reader must not overlook."""

    kind: ClassVar[str] = "notes"
    items: list[str]


@dataclass(frozen=True)
class Answers:
    """Findings in words: a bold start and the rest of the sentence."""

    kind: ClassVar[str] = "answers"
    items: list[tuple[str, str]]


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    kind: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True)
class Code:
    """Preformatted text, folded unless `open`."""

    kind: ClassVar[str] = "code"
    caption: str
    text: str
    open: bool = False


Block = Cards | Figures | Table | Notes | Answers | Text | Code


@dataclass(frozen=True)
class Section:
    """A headed part of the page."""

    heading: str
    blocks: list[Block]
    lead: str = ""
    anchor: str = field(init=False)

    def __post_init__(self) -> None:
        """Name the anchor after the heading, which is one of ours and never a user's text."""
        object.__setattr__(self, "anchor", re.sub(r"[^a-z0-9]+", "-", self.heading.lower()).strip("-"))


@dataclass(frozen=True)
class Page:
    """A whole page: `kind` names what it is, `facts` are pairs of label and value under the title."""

    kind: str
    title: str
    question: str
    facts: list[tuple[str, str]]
    sections: list[Section]
    footer: str


def name_cell(text: str) -> Cell:
    """A cell of words."""
    return Cell(text)


def number_cell(text: str, style: str = "") -> Cell:
    """A cell of figures, set to the right."""
    return Cell(text, number=True, style=style)
