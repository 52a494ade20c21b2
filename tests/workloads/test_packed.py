"""A packed workload is the workload."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from workloads.errors import WorkloadError
from workloads.fingerprint import sequence_fingerprints
from workloads.load import open_workload
from workloads.packed import PackedWorkload, pack
from workloads.spec import RequestSpec, TokenIds

KINDS = ["shared_prefix", "multimodal", "multi_turn", "lora_tenants", "salted_tenants", "agents"]


def plain(spec: RequestSpec) -> tuple[object, ...]:
    """All fields, comparable."""
    pieces = tuple(tuple(p.ids.tolist()) if isinstance(p, TokenIds) else tuple(p) for p in spec.prompt)
    return (pieces, *(getattr(spec, name) for name in RequestSpec.__slots__ if name != "prompt"))


@pytest.mark.parametrize("kind", KINDS)
def test_equal_specs_and_fingerprints(kind: str, tmp_path: Path) -> None:
    workload = open_workload({"kind": kind, "limit": 30}, seed=3)
    count = pack(workload, tmp_path, [8])
    packed = PackedWorkload(tmp_path)
    specs = list(open_workload({"kind": kind, "limit": 30}, seed=3).specs())
    assert count == packed.count == len(specs) > 0
    assert [plain(spec) for spec in packed.specs()] == [plain(spec) for spec in specs]
    for spec in specs:
        for size in (8, 16):  # one that was packed and one that was not
            np.testing.assert_array_equal(packed.fingerprints(spec, size), sequence_fingerprints(spec, size))


def test_literal_tokens_survive(tmp_path: Path) -> None:
    file = tmp_path / "ids.jsonl"
    file.write_text(
        '{"prompt_token_ids": [5, 6, 7], "output_tokens": 2}\n{"prompt_token_ids": [5], "output_tokens": 1}\n'
    )
    folder = tmp_path / "packed"
    folder.mkdir()
    config = {"kind": "trace", "path": str(file), "format": "token_ids"}
    pack(open_workload(config, seed=0), folder)
    assert [plain(s) for s in PackedWorkload(folder).specs()] == [
        plain(s) for s in open_workload(config, seed=0).specs()
    ]


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="no packed workload"):
        PackedWorkload(tmp_path)
    (tmp_path / "packed.json").write_text('{"version": 99}')
    with pytest.raises(WorkloadError, match="version 99"):
        PackedWorkload(tmp_path)
