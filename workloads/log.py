"""What reading or generating a workload had to say: skipped, changed and odd things, counted and named.

Nothing is dropped silently: whoever leaves a request out says so here, and the command line, the
summary and the report print it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from workloads.errors import WorkloadError

EXAMPLES = 5


@dataclass
class ReadLog:
    """Counts by reason, notes and warnings of one workload.

    Attributes:
        skip_bad_lines: count lines that cannot be used and go on, instead of refusing the file.
        skipped: requests or lines left out, by reason.
        counts: things that were kept but are odd or were changed, by kind.
        examples: the first places (``file:line``) of each reason or kind.
        notes: facts that a person should know, said once each.
        warnings: like notes, but something probably is not as meant.
        lines: lines or rows read so far, by file name, blank ones not counted.
    """

    skip_bad_lines: bool = False
    skipped: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)

    def count(self, kind: str, n: int = 1, where: str = "") -> None:
        """Count `n` things of a kind that were kept but are odd or were changed."""
        self._add(self.counts, kind, n, where)

    def skip(self, reason: str, n: int = 1, where: str = "") -> None:
        """Count `n` requests or lines that were left out, with the reason."""
        self._add(self.skipped, reason, n, where)

    def note(self, text: str) -> None:
        """Say a fact once, however often it is met."""
        if text not in self.notes:
            self.notes.append(text)

    def warn(self, text: str) -> None:
        """Say once that something probably is not as meant."""
        if text not in self.warnings:
            self.warnings.append(text)

    def bad_line(self, error: str, where: str, reason: str = "bad line") -> None:
        """Refuse a line that cannot be used, or count it when `skip_bad_lines` is set.

        Raises:
            WorkloadError: ``where: error``, unless `skip_bad_lines`.
        """
        if not self.skip_bad_lines:
            raise WorkloadError(f"{where}: {error}")
        self.skip(reason, 1, where)

    def summary(self) -> list[str]:
        """All of it as lines of text, the most important first."""
        rows = f" of {sum(self.lines.values()):,} rows" if self.lines else ""
        out = [f"{n:,}{rows} skipped: {reason}{self._where(reason)}" for reason, n in self.skipped.items() if n]
        out += [f"warning: {text}" for text in self.warnings]
        out += [f"{kind}: {n:,}{self._where(kind)}" for kind, n in self.counts.items() if n]
        return out + self.notes

    def _add(self, table: dict[str, int], kind: str, n: int, where: str) -> None:
        table[kind] = table.get(kind, 0) + n
        if where:
            places = self.examples.setdefault(kind, [])
            if len(places) < EXAMPLES:
                places.append(where)

    def _where(self, kind: str) -> str:
        places = self.examples.get(kind, [])
        total = self.skipped.get(kind, 0) + self.counts.get(kind, 0)
        if not places:
            return ""
        shown = [places[0]]
        for place in places[1:]:  # file:line is said in full once
            file, colon, line = place.rpartition(":")
            shown.append(line if colon and shown[0].startswith(f"{file}:") and line.isdigit() else place)
        return f" ({', '.join(shown)}{', …' if total > len(places) else ''})"
