"""The default efficiencies against public measurements, which are not part of the project."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(
    "KVSIM_MEASUREMENTS" not in os.environ, reason="KVSIM_MEASUREMENTS does not name the file of measurements"
)


@pytest.fixture(scope="module")
def comparison() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("step_times", BENCHMARKS / "step_times.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["step_times"] = module
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(BENCHMARKS))


def test_decode_steps_and_prefill_sums_are_within_the_targets(
    comparison: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["step_times.py", os.environ["KVSIM_MEASUREMENTS"], "--closed-loop", "0"])
    assert comparison.main() == 0
    printed = capsys.readouterr().out
    assert "MISSED" not in printed
    assert printed.count(": met") >= 4
