"""A merge with options: what lands on which side, with which masks, and what the manifest says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from tests.rows import row
from toolkit.audit.recheck import contradicted_prompts
from toolkit.config import parse_settings
from toolkit.contract import Contract
from toolkit.errors import ConfigError, GateClosed
from toolkit.manifest import read_manifest
from toolkit.merge import merge as merge_datasets
from toolkit.mix import MaskSettings, MergeSettings, Share
from toolkit.store.workspace import Workspace

from .gates import bytes_of, gate_of, merge, rows_of


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def turns(name: str, question: str, count: int, *, first: int = 0) -> list[dict[str, Any]]:
    """One row for each turn of a conversation."""
    rows = []
    for turn in range(count):
        said: list[dict[str, str]] = [{"role": "user", "content": question}]
        for earlier in range(turn):
            said += [{"role": "assistant", "content": f"a{earlier}"}, {"role": "user", "content": f"q{earlier}"}]
        ids = [first + turn + 100, 163607, 21, 163586]
        rows.append(
            row(name, turn=turn, messages=json.dumps(said), output_ids=ids, row_key=f"{name}{turn}{first:05}" * 6)
        )
    return rows


def test_a_prompt_is_on_one_side_with_all_turns_and_in_all_datasets(workspace: Workspace, kimi: Contract) -> None:
    one = [r for n in range(40) for r in turns(f"s{n}", f"Question {n}?", 3, first=1000 + 10 * n)]
    # The same questions under other names, the keys of their messages in another order.
    other = [
        r | {"messages": json.dumps([dict(reversed(m.items())) for m in json.loads(r["messages"])])}
        for n in range(40)
        for r in turns(f"t{n}", f"Question {n}?", 2, first=5000 + 10 * n)
    ]
    gates = [gate_of(workspace, kimi, "B3", one), gate_of(workspace, kimi, "B4", other)]
    output = workspace.root / "train"
    manifest = merge(gates, output, mix=MergeSettings(validation_percent=25))
    sides = {side: rows_of(output, side) for side in ("shards", "validation")}
    questions = {side: {json.loads(r["messages"])[0]["content"] for r in rows} for side, rows in sides.items()}
    assert questions["shards"] & questions["validation"] == set()
    assert len(questions["shards"] | questions["validation"]) == 40
    assert len(sides["shards"]) + len(sides["validation"]) == 200
    assert 0 < len(questions["validation"]) < 25
    assert len(sides["validation"]) == 5 * len(questions["validation"]) == manifest.totals.validation_rows
    assert [output.path for output in manifest.validation_outputs] == ["validation/part-00000.parquet"]
    assert sum(i.validation_rows for i in manifest.inputs) == manifest.totals.validation_rows
    again = merge(gates[::-1], workspace.root / "again", mix=MergeSettings(validation_percent=25))
    assert again == manifest
    assert bytes_of(output) == bytes_of(workspace.root / "again")


@pytest.mark.parametrize(
    ("mask", "thinking", "cut", "instant"),
    [
        (MaskSettings(), [1, 1, 1, 1], [1, 1, 1], [1, 1]),
        (MaskSettings(terminal="masked"), [1, 1, 1, 0], [1, 1, 1], [1, 0]),
        (MaskSettings(reasoning="masked"), [0, 0, 1, 1], [0, 0, 1], [1, 1]),
        (MaskSettings(reasoning="masked", terminal="masked"), [0, 0, 1, 0], [0, 0, 1], [1, 0]),
    ],
)
def test_masks_are_as_the_options_say(
    workspace: Workspace, kimi: Contract, mask: MaskSettings, thinking: list[int], cut: list[int], instant: list[int]
) -> None:
    rows = [
        row("thinking", output_ids=[20, 163607, 21, 163586]),
        row("cut", output_ids=[20, 163607, 21], finish_reason="length"),
        row("instant", mode="instant", output_ids=[21, 163586]),
        row("thought", output_ids=[20, 21, 22], finish_reason="length"),
    ]
    manifest = merge([gate_of(workspace, kimi, "B3", rows)], workspace.root / "train", mix=MergeSettings(mask=mask))
    found = {r["id"].split("/")[1]: r for r in rows_of(workspace.root / "train")}
    masks = {name: r["loss_mask"][r["prompt_len"] :] for name, r in found.items()}
    expected = {"thinking": thinking, "cut": cut, "instant": instant}
    if mask.reasoning == "supervised":
        expected["thought"] = [1, 1, 1]
    assert masks == expected
    assert all(sum(r["loss_mask"]) == r["n_supervised"] for r in found.values())
    assert all(sum(r["loss_mask"][: r["prompt_len"]]) == 0 for r in found.values())
    # Reasoning that was cut has no answer behind it: nothing of it would be supervised.
    assert manifest.totals.dropped["nothing_supervised"] == (mask.reasoning == "masked")
    assert manifest.totals.supervised_ids == sum(sum(m) for m in masks.values())
    assert manifest.mix.mask == mask
    assert manifest.proof is not None
    assert all(result.success for result in manifest.proof.results)


def test_rows_that_the_trainers_window_hides_are_left_out(workspace: Workspace, kimi: Contract) -> None:
    rows = [
        row("seen", prompt_ids=[1, 2], output_ids=[3, 4, 163586]),
        row("one", prompt_ids=[1, 2, 3], output_ids=[3, 4, 163586]),
        row("hidden", prompt_ids=[1, 2, 3, 4], output_ids=[5, 163586]),
    ]
    gate = gate_of(workspace, kimi, "B3", rows)
    mask = MaskSettings(window=4, adjacent_pair=True)
    manifest = merge([gate], workspace.root / "train", mix=MergeSettings(mask=mask))
    assert [r["id"] for r in rows_of(workspace.root / "train")] == ["B3/seen/0/0"]
    dropped = {name: count for name, count in manifest.totals.dropped.items() if count}
    assert dropped == {"outside_window": 1, "no_adjacent_pair": 1}
    assert manifest.proof is not None
    assert [r.id for r in manifest.proof.results if not r.success] == ["clipped_at_train_len"]


def test_rows_whose_prompt_is_contradicted_are_left_out_unless_kept(workspace: Workspace, kimi: Contract) -> None:
    rows = [row(name, output_ids=[n, 163586]) for n, name in enumerate("abc")]
    gate = gate_of(workspace, kimi, "B3", rows, quarantine={(0, 2): ["terminal_last"]})
    shard = gate.live.shards[0].sha256
    listed = pa.table({"shard": [shard, shard, "00"], "row_index": pa.array([1, 2, 0], pa.int32())})
    manifest = merge([gate], workspace.root / "train", contradicted={"B3": listed})
    assert [r["id"] for r in rows_of(workspace.root / "train")] == ["B3/a/0/0"]
    assert {k: n for k, n in manifest.totals.dropped.items() if n} == {"quarantined": 1, "prompt_contradicted": 1}
    with pytest.raises(ConfigError, match="the rows whose prompt is contradicted, found nothing of B3; give these, or"):
        merge_datasets([gate], workspace.root / "train", mix=MergeSettings(seed=9))
    assert manifest == read_manifest(workspace.root / "train"), "nothing was replaced"
    keep = MergeSettings(contradicted_prompts="keep")
    kept = merge_datasets([gate], workspace.root / "train", mix=keep)
    assert kept.totals.dropped["prompt_contradicted"] == 0
    assert kept.totals.written == 2


def test_duplicates_across_datasets_go_and_are_counted_where_they_were(workspace: Workspace, kimi: Contract) -> None:
    one = [row("a", output_ids=[1, 163586]), row("b", output_ids=[2, 163586]), row("c", output_ids=[2, 163586])]
    two = [row("a", output_ids=[3, 163586]), row("x", output_ids=[2, 163586]), row("y", output_ids=[4, 163586])]
    gates = [gate_of(workspace, kimi, "B4", two), gate_of(workspace, kimi, "B3", one)]
    manifest = merge(gates, workspace.root / "train")
    assert sorted(r["id"] for r in rows_of(workspace.root / "train")) == [
        "B3/a/0/0",
        "B3/b/0/0",
        "B3/c/0/0",
        "B4/y/0/0",
    ]
    dropped = {i.name: {k: n for k, n in i.dropped.items() if n} for i in manifest.inputs}
    assert dropped == {"B3": {}, "B4": {"duplicate_request": 1, "duplicate_answer": 1}}
    assert manifest.totals.repeated == 0


def test_a_mix_by_weights_and_limits_adds_up_in_the_manifest(workspace: Workspace, kimi: Contract) -> None:
    gates = [
        gate_of(workspace, kimi, name, [row(f"{name}{n}", output_ids=[k * 1000 + n, 163586]) for n in range(60)])
        for k, name in enumerate(("B3", "B4"))
    ]
    shares = {"B3": Share(weight=1.0), "B4": Share(weight=3.0, max_rows=45)}
    mix = MergeSettings(datasets={**shares, "B9": Share(max_rows=1)})
    manifest = merge(gates, workspace.root / "train", mix=mix)
    assert [i.written for i in manifest.inputs] == [15, 45]
    assert [i.ids for i in manifest.inputs] == [75, 225]
    assert manifest.inputs[0].dropped["weight"] == 45
    assert manifest.inputs[1].dropped["dataset_limit"] == 15
    assert manifest.mix.datasets == shares
    assert read_manifest(workspace.root / "train") == manifest


def test_rows_that_do_not_pass_the_suite_leave_no_train_set(workspace: Workspace, kimi: Contract) -> None:
    gate = gate_of(workspace, kimi, "B3", [row("a", output_ids=[999_999, 163586])])
    with pytest.raises(GateClosed, match=r"id_out_of_vocab: 1 of 1 rows: An id lies outside the vocabulary"):
        merge([gate], workspace.root / "train")
    assert not (workspace.root / "train").exists()


SETTINGS = b"""
[merge]
seed = 7
validation_percent = 2
max_tokens = 1000
[merge.datasets.B3]
weight = 2
[merge.sources."openrouter/Chutes"]
max_rows = 5
[merge.mask]
terminal = "masked"
window = 4096
"""


def test_settings_of_the_file() -> None:
    assert parse_settings(SETTINGS, "tokenproof.toml").merge == MergeSettings(
        seed=7,
        validation_percent=2.0,
        max_tokens=1000,
        datasets={"B3": Share(weight=2.0)},
        sources={"openrouter/Chutes": Share(max_rows=5)},
        mask=MaskSettings(terminal="masked", window=4096),
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[merge]\nsed = 1", "merge.sed: unknown key; did you mean seed?"),
        ("[merge]\nvalidation_percent = 51", "merge.validation_percent: "),
        ("[merge.mask]\nterminal = 'yes'", "merge.mask.terminal: expected one of 'supervised', 'masked'"),
        ("[merge.datasets.B3]\nweight = 0", "merge.datasets.B3.weight: "),
        ("[merge.datasets.B3]\nweight = 1\n[merge.sources.x]\nweight = 1", "merge.sources: expected weights of"),
    ],
)  # fmt: skip
def test_settings_that_are_refused(content: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        parse_settings(content.encode(), "tokenproof.toml")


def test_rows_whose_prompt_evidence_is_contradicted_are_found_in_the_judged_facts() -> None:
    judged = pl.LazyFrame(
        {
            "prompt_evidence": ["engine", "contradicted", "unverified", "contradicted"],
            "shard": ["5a", "5a", "5b", "5b"],
            "row_index": [0, 1, 0, 1],
            "n_ids": [1, 2, 3, 4],
        }
    )
    assert contradicted_prompts(judged).to_pylist() == [
        {"shard": "5a", "row_index": 1},
        {"shard": "5b", "row_index": 1},
    ]
