"""Misses in whole runs: tables, summary, figures, and both paths."""

import os
from pathlib import Path

import pytest

from sim.config import config_from_mapping
from sim.experiment import run
from sim.report.embed import Rendered, render_picture
from sim.report.figures import misses
from sim.report.folder import ResultsFolder

TRACES = os.environ.get("KVSIM_TRACES")
MOONCAKE = Path(TRACES or ".") / "mooncake_conversation_trace.jsonl.gz"

BASE = {
    "name": "t",
    "engine": {"block_size": 4, "max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": 256},
    "memory": {"num_gpu_blocks": 60},
    "timing": {"kind": "fixed", "step_s": 0.1},
    "workloads": [
        {
            "kind": "shared_prefix",
            "category": "prefix",
            "requests": 50,
            "prefixes": 5,
            "prefix_tokens": 24,
            "suffix_tokens": {"uniform": {"min": 3, "max": 20}},
            "output_tokens": {"uniform": {"min": 1, "max": 24}},
            "arrivals": {"poisson": {"rate_per_s": 4}},
        },
        {
            "kind": "multimodal",
            "category": "images",
            "requests": 20,
            "text_after_tokens": 8,
            "images": 4,
            "tokens_per_image": 24,
            "output_tokens": 4,
            "arrivals": {"poisson": {"rate_per_s": 2}},
        },
    ],
    "recording": {"misses": True},
}


def result(tmp_path, name="r", check=True, **sections):
    return run(config_from_mapping(BASE | sections), out=tmp_path, run_name=name, check_invariants=check)


def test_shares_agree_with_the_tables_and_with_the_hit_rate(tmp_path):
    found = result(tmp_path)
    summary, table, costs = found.summary, found.misses, found.eviction_costs
    told = summary["misses"]
    blocks = table.groupby("cause")["blocks"].sum()
    assert {cause: count for cause, count in told["by_cause"].items() if count} == blocks.to_dict()
    assert told["asked_blocks"] == told["hit_blocks"] + told["missed_blocks"]
    assert told["missed_blocks"] == table["blocks"].sum()
    assert sum(told["share"].values()) == pytest.approx(1.0)
    assert summary["hit_rate"]["full_blocks"] == told["first_hit_blocks"] / told["first_asked_blocks"]
    assert told["first_asked_blocks"] == (found.requests["prompt_tokens"] // 4).sum()
    assert (table["tokens"] == 4 * table["blocks"]).all()
    assert set(table["category"]) == {"prefix", "images"}
    assert len(costs) == len(found.evictions) == summary["evictions"] == summary["eviction_costs"]["evictions"]
    assert costs["recomputed_tokens"].sum() == table.loc[table["evicted_row"].notna(), "tokens"].sum()
    assert (costs["next_wanted_s"].dropna() >= found.evictions["time_s"][costs["next_wanted_s"].notna()]).all()
    assert summary["eviction_costs"]["regretted"] == costs["better_victim"].sum() > 0
    assert "misses.share.evicted" in summary["definitions"]


def test_an_evicted_row_is_the_eviction_of_that_depth(tmp_path):
    found = result(tmp_path)
    evicted = found.misses[found.misses["cause"] == "evicted"]
    assert len(evicted) > 10
    rows = found.evictions.iloc[evicted["evicted_row"].astype(int)].reset_index(drop=True)
    assert (rows["depth_blocks"].to_numpy() == evicted["first_block"].to_numpy()).all()
    assert (rows["step"].to_numpy() == evicted["evicted_step"].to_numpy()).all()
    assert (rows["time_s"].to_numpy() == evicted["evicted_s"].to_numpy()).all()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_both_paths_write_the_same_bytes(tmp_path, asynchronous):
    engine = BASE["engine"] | {"async_scheduling": asynchronous}
    fast = result(tmp_path, "fast", engine=engine | {"implementation": "fast"})
    reference = result(tmp_path, "reference", engine=engine | {"implementation": "reference"})
    for table in ("misses", "evictions", "eviction_costs"):
        assert (fast.path / f"{table}.parquet").read_bytes() == (reference.path / f"{table}.parquet").read_bytes()
    assert fast.summary["misses"] == reference.summary["misses"]


def test_it_changes_no_decision_and_is_off_by_default(tmp_path):
    plain = result(tmp_path, "plain", recording={})
    explained = result(tmp_path, "explained")
    assert not plain.has_table("misses")
    assert "misses" not in plain.summary
    for table in ("requests", "steps", "evictions"):
        assert (plain.path / f"{table}.parquet").read_bytes() == (explained.path / f"{table}.parquet").read_bytes()


@pytest.mark.parametrize("policy", ["fifo", "lfu", "leaf_lru", "arc"])
def test_other_policies_are_explained_too(tmp_path, policy):
    found = result(tmp_path, eviction={"policy": policy})
    assert found.summary["implementation"] == "reference"
    costs = found.summary["eviction_costs"]
    assert 0 < costs["regretted"] <= costs["costly"] <= costs["wanted_again"] <= costs["evictions"]


def test_the_optimum_regrets_nothing(tmp_path):
    costs = result(tmp_path, eviction={"policy": "belady"}).summary["eviction_costs"]
    assert costs["costly"] > 0
    assert costs["regretted"] == 0


@pytest.mark.parametrize("implementation", ["fast", "reference"])
def test_evictions_need_not_be_recorded(tmp_path, implementation):
    engine = BASE["engine"] | {"implementation": implementation}
    both = result(tmp_path, "both", engine=engine)
    alone = result(tmp_path, "alone", engine=engine, recording={"misses": True, "evictions": False})
    assert not alone.has_table("evictions")
    for table in ("misses", "eviction_costs"):
        assert (alone.path / f"{table}.parquet").read_bytes() == (both.path / f"{table}.parquet").read_bytes()


def test_real_hashes_explain_the_same(tmp_path):
    plain = result(tmp_path, "plain")
    hashed = result(tmp_path, "hashed", recording={"misses": True, "kv_events": "jsonl"})
    assert hashed.summary["implementation"] == "reference"
    for table in ("misses", "eviction_costs"):
        assert (hashed.path / f"{table}.parquet").read_bytes() == (plain.path / f"{table}.parquet").read_bytes()


def test_figures_are_drawn(tmp_path):
    found = result(tmp_path)
    folder = ResultsFolder(found.path)
    for picture in (misses.OVER_TIME, misses.BY_CATEGORY, misses.REGRET_BY_DEPTH, misses.REGRET_BY_AGE):
        rendered = render_picture(picture, folder, tmp_path)
        assert isinstance(rendered, Rendered), rendered
        assert (tmp_path / f"{picture.name}.png").stat().st_size > 10_000


@pytest.mark.skipif(not MOONCAKE.exists(), reason="KVSIM_TRACES names no folder with the Mooncake conversation trace")
def test_mooncake(tmp_path):
    told = []
    for name in ("fast", "reference"):
        found = result(
            tmp_path,
            name,
            check=False,
            engine={"block_size": 128, "max_num_batched_tokens": 8192, "implementation": name},
            memory={"num_gpu_blocks": 1000},
            timing={"kind": "fixed", "step_s": 0.04},
            workload={"kind": "trace", "path": str(MOONCAKE), "limit": 200},
            workloads=None,
        )
        told.append((found.path / "misses.parquet").read_bytes() + (found.path / "eviction_costs.parquet").read_bytes())
        assert found.summary["misses"]["by_cause"]["evicted"] > 0
    assert told[0] == told[1]
