"""One progress bar over all points, with an estimate of what is left."""

from __future__ import annotations

from typing import Any


class SweepBar:
    """A bar on stderr that `run_sweep` calls; `failed` points counted so far.

    Points that were done before do not count for the estimate.
    """

    def __init__(self, total: int, *, shown: bool | None) -> None:
        """`shown`: True, False, or None for "on a terminal"."""
        self.failed = 0
        self._total = total
        self._disable = None if shown is None else not shown
        self._bar: Any = None

    def __call__(self, done: int, failed: int) -> None:
        """So many points are done, so many of them failed."""
        self.failed = failed
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(total=self._total, initial=done, unit="point", desc="sweep", disable=self._disable)
            return
        if failed:
            self._bar.set_postfix_str(f"{failed} failed", refresh=False)
        self._bar.update(done - self._bar.n if not self._bar.disable else 0)

    def __enter__(self) -> SweepBar:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()
