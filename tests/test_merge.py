"""The merge: which rows, in which order, as which ids, and what is on disk when it is killed."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from toolkit.columns import SHARD_SCHEMA, TRAIN_SCHEMA
from toolkit.contract import Contract
from toolkit.errors import ConfigError, ShardError, StoreError
from toolkit.gate import OpenGate, open_gate
from toolkit.manifest import (
    DatasetInput,
    Manifest,
    OutputFile,
    SourceShare,
    Totals,
    check_sums,
    foreign_files,
    read_manifest,
    render_manifest,
)
from toolkit.merge import Dropped
from toolkit.mix import MergeSettings
from toolkit.report.card import render_card
from toolkit.store import shard_writer
from toolkit.store.files import sha256_of, sole_writer
from toolkit.store.shards import LiveShards, read_live, write_live
from toolkit.store.shuffle import Buckets, PartCutter, cut_parts
from toolkit.store.workspace import Dataset, Workspace

from .conftest import ROOT
from .merge.gates import merge
from .rows import SUITE, add_dataset, audit, key_of, row, suite_path

Rows = Sequence[Mapping[str, Any]]


def opened(workspace: Workspace, dataset: Dataset, contract: Contract) -> OpenGate:
    """A gate that believes the verdict: what the audit concludes is not the merge's matter."""
    suites = [(SUITE, suite_path(workspace))]
    return open_gate(dataset, contract, suites, allowed_providers=(), recheck=lambda *_: ())


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def gate_of(workspace: Workspace, contract: Contract, name: str, *shards: Rows, **how: Any) -> OpenGate:
    """The open gate of a new dataset."""
    dataset = add_dataset(workspace, name, *shards)
    audit(workspace, dataset, contract, **how)
    return opened(workspace, dataset, contract)


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def train_rows(folder: Path) -> list[dict[str, Any]]:
    return [r for path in sorted((folder / "shards").iterdir()) for r in pq.read_table(path).to_pylist()]


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


# --- rows -------------------------------------------------------------------------------------------


def test_ids_and_masks_element_for_element(workspace: Workspace, kimi: Contract) -> None:
    rows = [
        row("a", prompt_ids=[1, 2, 3], output_ids=[4, 5]),
        row("b", prompt_ids=[6], output_ids=[7, 8, 9, 10], turn=1, sample_index=2),
        row("c", prompt_ids=[0, 0], output_ids=[163586]),
    ]
    merge([gate_of(workspace, kimi, "B3", rows)], workspace.root / "train")
    found = {r["id"]: r for r in train_rows(workspace.root / "train")}
    shown = ["input_ids", "loss_mask", "prompt_len", "seq_len", "n_supervised"]
    assert {key: [r[name] for name in shown] for key, r in found.items()} == {
        "B3/a/0/0": [[1, 2, 3, 4, 5], [0, 0, 0, 1, 1], 3, 5, 2],
        "B3/b/1/2": [[6, 7, 8, 9, 10], [0, 1, 1, 1, 1], 1, 5, 4],
        "B3/c/0/0": [[0, 0, 163586], [0, 0, 1], 2, 3, 1],
    }


def test_columns_are_those_of_the_schema_and_the_rest_is_as_in_the_shard(workspace: Workspace, kimi: Contract) -> None:
    given = row("ü/1", provider="Chutes", source="openrouter", tool_calls='[{"id":"x"}]', content="", reasoning=None)
    gate = gate_of(workspace, kimi, "B3", [given])
    manifest = merge([gate], workspace.root / "train")
    path = workspace.root / "train/shards/part-00000.parquet"
    assert pq.read_schema(path).equals(TRAIN_SCHEMA)
    assert manifest.columns == tuple(TRAIN_SCHEMA.names)
    (found,) = train_rows(workspace.root / "train")
    assert found["id"] == "B3/ü/1/0/0"
    assert found["dataset"] == "B3"
    assert found["shard"] == gate.live.shards[0].sha256
    copied = [name for name in TRAIN_SCHEMA.names if name in given]
    assert {name: found[name] for name in copied} == {name: given[name] for name in copied}


def test_ids_have_no_dictionary_and_pages_have_checksums(workspace: Workspace, kimi: Contract) -> None:
    merge([gate_of(workspace, kimi, "B3", [row(f"s{n}") for n in range(50)])], workspace.root / "train")
    path = workspace.root / "train/shards/part-00000.parquet"
    group = pq.read_metadata(path).row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    assert not columns["input_ids.list.element"].has_dictionary_page
    content = bytearray(path.read_bytes())
    content[columns["input_ids.list.element"].data_page_offset + 40] ^= 1
    path.write_bytes(content)
    with pytest.raises(OSError, match=r"(?i)crc|checksum"):
        pq.ParquetFile(path, page_checksum_verification=True).read()


def test_order_is_that_of_the_hash(workspace: Workspace, kimi: Contract) -> None:
    rows = [row(f"s{n}") for n in range(200)]
    merge([gate_of(workspace, kimi, "B3", rows)], workspace.root / "train", mix=MergeSettings(seed=7))
    found = [r["row_key"] for r in train_rows(workspace.root / "train")]
    assert found == sorted((r["row_key"] for r in rows), key=lambda key: hashlib.sha256(f"7{key}".encode()).digest())


def test_another_seed_is_another_order_of_the_same_rows(workspace: Workspace, kimi: Contract) -> None:
    gate = gate_of(workspace, kimi, "B3", [row(f"s{n}") for n in range(50)])
    first, second = workspace.root / "one", workspace.root / "two"
    merge([gate], first, mix=MergeSettings(seed=1))
    merge([gate], second, mix=MergeSettings(seed=2))
    one, two = ([r["id"] for r in train_rows(folder)] for folder in (first, second))
    assert one != two
    assert sorted(one) == sorted(two)


def test_the_same_bytes_twice(workspace: Workspace, kimi: Contract) -> None:
    gate = gate_of(workspace, kimi, "B3", [row(f"s{n}") for n in range(100)])
    one = merge([gate], workspace.root / "one")
    two = merge([gate], workspace.root / "two")
    assert files_of(workspace.root / "one") == files_of(workspace.root / "two")
    assert one == two


def test_the_same_bytes_in_whatever_order_datasets_and_shards_are_named(workspace: Workspace, kimi: Contract) -> None:
    # B4 asks again what B3 asked: between equal keys the dataset's name decides.
    shards = [[row(f"s{n}") for n in range(k, 60, 3)] for k in range(3)]
    gates = [gate_of(workspace, kimi, name, *shards) for name in ("B3", "B4", "B5")]
    keep = MergeSettings(duplicates="keep")
    one = merge(gates, workspace.root / "one", mix=keep)
    for gate in gates:
        write_live(gate.dataset, LiveShards(gate.live.contract, tuple(reversed(gate.live.shards))))
    reopened = [opened(workspace, gate.dataset, kimi) for gate in reversed(gates)]
    assert [gate.live for gate in reopened] != [gate.live for gate in reversed(gates)]
    two = merge(reopened, workspace.root / "two", mix=keep)
    assert files_of(workspace.root / "one") == files_of(workspace.root / "two")
    assert one == two
    assert one.totals.repeated == 120
    assert [r["id"] for r in train_rows(workspace.root / "one")][:3] == [
        f"{name}/{train_rows(workspace.root / 'one')[0]['id'].split('/')[1]}/0/0" for name in ("B3", "B4", "B5")
    ]


def test_the_same_parts_however_rows_lie_in_shards(workspace: Workspace, kimi: Contract) -> None:
    # Two rows each of one request: between equal keys the sample's id decides.
    rows = [row(f"s{n:02}", row_key=key_of(str(n % 30))) for n in range(60)]
    merge([gate_of(workspace, kimi, "B3", rows[:11], rows[11:])], workspace.root / "one")
    other = Workspace(workspace.root / "elsewhere")
    merge([gate_of(other, kimi, "B3", rows[40:], rows[:40])], workspace.root / "two")
    one, two = (
        [{k: v for k, v in r.items() if k != "shard"} for r in train_rows(workspace.root / name)]
        for name in ("one", "two")
    )
    assert one == two


# --- what is left out ------------------------------------------------------------------------------


def test_what_must_not_be_trained_on_is_dropped_and_counted(workspace: Workspace, kimi: Contract) -> None:
    first = [
        row("kept"),
        row("quarantined"),
        row("kept", probe=True, row_key=key_of("probe")),
        row("unknown", prompt_ids=None, prompt_ids_source=None, messages=None),
    ]
    second = [
        row("both", probe=True),
        row("idless", output_ids=None, ids_source=None),
        row("empty", output_ids=[]),
        row("bare", prompt_ids=[]),
        row("also", source="openrouter", provider="Chutes", prompt_ids=[1, 2], output_ids=[3]),
    ]
    gate = gate_of(
        workspace, kimi, "B3", first, second, quarantine={(0, 1): ["terminal_last", "evidence"], (1, 0): ["evidence"]}
    )
    manifest = merge([gate], workspace.root / "train")
    assert sorted(r["id"] for r in train_rows(workspace.root / "train")) == ["B3/also/0/0", "B3/kept/0/0"]
    dropped = dict.fromkeys(map(str, Dropped), 0) | {"quarantined": 2, "probe": 1, "no_ids": 2, "prompt_unknown": 2}
    reasons = {"evidence": 2, "terminal_last": 1}
    assert manifest.totals == Totals(
        rows=9,
        written=2,
        validation_rows=0,
        dropped=dropped,
        quarantined_by_expectation=reasons,
        repeated=0,
        ids=10,
        prompt_ids=5,
        supervised_ids=5,
    )
    assert manifest.sources == (
        SourceShare(
            source="openrouter", provider="Chutes", rows=1, validation_rows=0, ids=3, prompt_ids=2, supervised_ids=1
        ),
        SourceShare(source="sglang", provider=None, rows=1, validation_rows=0, ids=7, prompt_ids=3, supervised_ids=4),
    )
    (of_dataset,) = manifest.inputs
    assert (of_dataset.rows, of_dataset.written, dict(of_dataset.dropped)) == (9, 2, dropped)
    assert of_dataset.quarantined_by_expectation == reasons
    assert of_dataset.shards == gate.live.shards


def test_the_manifest_names_everything_it_was_made_of(workspace: Workspace, kimi: Contract) -> None:
    ids = {"B3": [20, 163607, 21, 163586], "B4": [22, 163607, 23, 163586]}
    gates = [gate_of(workspace, kimi, name, [row(name, output_ids=ids[name])]) for name in ("B4", "B3")]
    manifest = merge(gates, workspace.root / "train", mix=MergeSettings(seed=3))
    assert read_manifest(workspace.root / "train") == manifest
    assert [i.name for i in manifest.inputs] == ["B3", "B4"]
    for found, gate in zip(manifest.inputs, reversed(gates), strict=True):
        assert found.verdict_sha256 == sha256_of(gate.dataset.verdict)
        assert found.quarantine_sha256 == sha256_of(gate.dataset.quarantine)
        assert [(s.name, s.sha256) for s in found.suites] == [(SUITE, sha256_of(suite_path(workspace)))]
    assert (manifest.contract, manifest.contract_sha256, manifest.seed) == (kimi.name, kimi.sha256, 3)
    (output,) = manifest.outputs
    assert output == OutputFile(
        path="shards/part-00000.parquet", sha256=sha256_of(workspace.root / "train" / output.path), rows=2
    )
    content = msgspec.json.decode((workspace.root / "train/manifest.json").read_bytes())
    assert (content["tool"], content["version"]) == ("tokenproof", 3)


def test_sentences_for_the_terminal(workspace: Workspace, kimi: Contract) -> None:
    rows = [row("a"), row("b"), row("c", prompt_ids=None), row("d", probe=True)]
    gate = gate_of(workspace, kimi, "B3", rows, quarantine={(0, 1): ["odd\x1b[2J"]})
    assert render_manifest(merge([gate], workspace.root / "train")) == [
        "1 row of 4 written to 1 file, from 1 dataset",
        "3 rows left out: probe 1, prompt_unknown 1, quarantined 1",
        "quarantined, by expectation: odd␛[2J 1",
        "1 row left out only for want of the prompt's ids; the audit's report says what helps",
        "7 tokens: 3 of prompts, 4 supervised",
        "suite train-set: 19 of 19 expectations hold on the written rows",
    ]


def test_progress_tells_of_rows_read_and_rows_written(workspace: Workspace, kimi: Contract) -> None:
    told: list[int] = []
    gate = gate_of(workspace, kimi, "B3", [row("a"), row("b", probe=True)], [row("c")])
    merge([gate], workspace.root / "train", advance=told.append)
    assert told == [2, 1, 2]


# --- refusals -----------------------------------------------------------------------------------------


def test_nothing_left(workspace: Workspace, kimi: Contract) -> None:
    gate = gate_of(workspace, kimi, "B3", [row("a", prompt_ids=None), row("b", probe=True)])
    with pytest.raises(StoreError, match=r"no row remains.*: 1 probe, 1 prompt_unknown$") as caught:
        merge([gate], workspace.root / "train")
    assert caught.value.exit_code == 3
    assert not (workspace.root / "train").exists()


def test_no_dataset_and_the_same_dataset_twice(workspace: Workspace, kimi: Contract) -> None:
    gate = gate_of(workspace, kimi, "B3", [row("a")])
    with pytest.raises(ConfigError, match="at least one dataset"):
        merge([], workspace.root / "train")
    with pytest.raises(ConfigError, match="found twice: B3"):
        merge([gate, gate], workspace.root / "train")


@pytest.mark.parametrize("change", [{"contract": "kimi-k3"}, {"contract_sha256": "ff" * 32}])
def test_two_contracts(workspace: Workspace, kimi: Contract, change: dict[str, str]) -> None:
    one, two = (gate_of(workspace, kimi, name, [row("a")]) for name in ("B3", "B4"))
    with pytest.raises(ConfigError, match=r"one contract, found B3: .*; B4: "):
        merge([one, replace(two, verdict=replace(two.verdict, **change))], workspace.root / "train")


def test_a_row_of_another_contract(workspace: Workspace, kimi: Contract) -> None:
    gate = gate_of(workspace, kimi, "B3", [row("a"), row("b", contract="gpt-oss")])
    with pytest.raises(StoreError, match=r"B3/shards/part-00000.parquet: expected rows of contract kimi-k2\.5 only"):
        merge([gate], workspace.root / "train")


@pytest.mark.parametrize("shards", [[[row("a"), row("b"), row("a")]], [[row("a")], [row("a", row_key=key_of("z"))]]])
def test_a_row_that_stands_there_twice(workspace: Workspace, kimi: Contract, shards: list[Rows]) -> None:
    gate = gate_of(workspace, kimi, "B3", *shards)
    with pytest.raises(StoreError, match=r"B3: expected each .* once, found twice: 'a', 0, 0"):
        merge([gate], workspace.root / "train")


@pytest.mark.parametrize("column", ["output_ids", "prompt_ids"])
def test_a_null_among_ids(workspace: Workspace, kimi: Contract, column: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # As another writer may have written it: this one refuses.
    monkeypatch.setattr(shard_writer, "_packed", lambda ids: ids)
    monkeypatch.setattr(shard_writer, "_array", lambda values, _, kind: pa.array(values, kind))
    monkeypatch.setattr(shard_writer, "_encoded", str)
    monkeypatch.setattr(shard_writer, "_sizes", lambda rows: [1] * len(rows["payload"]))
    monkeypatch.setattr(shard_writer, "_IDS", pa.list_(pa.int32()))
    monkeypatch.setattr(
        shard_writer, "_WRITTEN_SCHEMA", SHARD_SCHEMA.with_metadata(shard_writer._WRITTEN_SCHEMA.metadata)
    )
    gate = gate_of(workspace, kimi, "B3", [row("a"), row("b", **{column: [1, None, 2]})])
    with pytest.raises(StoreError, match=f"column {column}: expected ids, found a null"):
        merge([gate], workspace.root / "train")


def test_ids_that_do_not_say_where_they_come_from(workspace: Workspace, kimi: Contract) -> None:
    gate = gate_of(workspace, kimi, "B3", [row("a", ids_source=None)])
    with pytest.raises(StoreError, match="column ids_source: expected a value in every row, found 1 null"):
        merge([gate], workspace.root / "train")


def test_a_shard_altered_after_the_gate_was_opened(workspace: Workspace, kimi: Contract) -> None:
    gate = gate_of(workspace, kimi, "B3", [row("a")])
    path = gate.dataset.folder / gate.live.shards[0].path
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    with pytest.raises(ShardError, match="expected sha256"):
        merge([gate], workspace.root / "train")
    assert not (workspace.root / "train").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"row_key": "00" * 32}, "row 1: the quarantine lists another row_key"),
        ({"row_index": 0}, "row 0: the quarantine lists another row_key"),
        ({"row_index": 9}, "has 3 rows, but the quarantine lists row 9"),
        ({"row_index": -1}, "has 3 rows, but the quarantine lists row -1"),
        ({"shard": "00" * 32}, "lists 1 rows, of which 0 are found in the shards"),
    ],
)
def test_a_quarantine_that_does_not_fit(
    workspace: Workspace, kimi: Contract, change: dict[str, Any], message: str
) -> None:
    gate = gate_of(workspace, kimi, "B3", [row("a"), row("b"), row("c")], quarantine={(0, 1): ["x"]})
    (listed,) = gate.quarantine.to_pylist()
    table = pa.Table.from_pylist([listed | change], schema=gate.quarantine.schema)
    with pytest.raises(StoreError, match=message):
        merge([replace(gate, quarantine=table)], workspace.root / "train")


def test_a_quarantine_that_lists_a_row_twice(workspace: Workspace, kimi: Contract) -> None:
    gate = gate_of(workspace, kimi, "B3", [row("a"), row("b")], quarantine={(0, 1): ["x"]})
    twice = pa.concat_tables([gate.quarantine, gate.quarantine])
    with pytest.raises(StoreError, match="lists 2 rows, of which 1 are found"):
        merge([replace(gate, quarantine=twice)], workspace.root / "train")


@pytest.mark.parametrize("where", ["input", "totals", "sources", "outputs"])
def test_counts_that_do_not_add_up(workspace: Workspace, kimi: Contract, where: str) -> None:
    manifest = merge([gate_of(workspace, kimi, "B3", [row("a"), row("b")])], workspace.root / "train")
    check_sums(manifest)
    changes: dict[str, tuple[DatasetInput | SourceShare | OutputFile, ...] | Totals] = {
        "input": (replace(manifest.inputs[0], written=1),),
        "totals": replace(manifest.totals, dropped={"probe": 1}),
        "sources": (replace(manifest.sources[0], rows=3),),
        "outputs": (),
    }
    name = "inputs" if where == "input" else where
    with pytest.raises(StoreError, match="the counts do not add up: expected 2 rows"):
        check_sums(replace(manifest, **{name: changes[where]}))


# --- the folder ---------------------------------------------------------------------------------------


def test_an_own_train_set_is_replaced_whole(workspace: Workspace, kimi: Contract) -> None:
    output = workspace.root / "train"
    one, two = (gate_of(workspace, kimi, name, [row(name)]) for name in ("B3", "B4"))
    merge([one, two], output, mix=MergeSettings(duplicates="keep"))
    before = files_of(output)
    with pytest.raises(ConfigError, match=r"expected a train set of B4, found one of B3, B4 \(2 rows\).*--replace"):
        merge([two], output)
    assert files_of(output) == before
    merge([two], output, replace=True)
    assert [r["id"] for r in train_rows(output)] == ["B4/B4/0/0"]
    assert [i.name for i in read_manifest(output).inputs] == ["B4"]
    assert sorted(path.name for path in output.iterdir()) == ["manifest.json", "shards"]
    assert visible(workspace.root) == ["datasets", "expectations", "reports", "train"]
    assert not (workspace.root / ".train.merging").exists()


def test_an_empty_folder_and_one_through_a_link_are_written_to(workspace: Workspace, kimi: Contract) -> None:
    gate = gate_of(workspace, kimi, "B3", [row("a")])
    (workspace.root / "deep/real").mkdir(parents=True)
    (workspace.root / "train").symlink_to(workspace.root / "deep/real")
    merge([gate], workspace.root / "train")
    assert (workspace.root / "train").is_symlink()
    assert len(train_rows(workspace.root / "deep/real")) == 1


@pytest.mark.parametrize(
    "files",
    [
        {"notes.txt": "mine"},
        {"manifest.json": "{}"},
        {"manifest.json": "not JSON"},
        {"manifest.json": '["tokenproof"]'},
        {"manifest.json": '{"tool": "another"}', "shards/part-00000.parquet": ""},
        {"shards/part-00000.parquet": ""},
        {"manifest.json": '{"tool": "tokenproof"}', "checkpoint/weights.bin": "months of work"},
        {"manifest.json": '{"tool": "tokenproof"}', "shards/mine.parquet": "x"},
    ],
)
def test_a_foreign_folder_is_refused(workspace: Workspace, kimi: Contract, files: dict[str, str]) -> None:
    output = workspace.root / "train"
    for name, content in files.items():
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_text(content, encoding="utf-8")
    gate = gate_of(workspace, kimi, "B3", [row("a")])
    told: list[int] = []
    with pytest.raises(ConfigError, match="train: expected ") as caught:
        merge([gate], output, advance=told.append)
    assert told == [], "it is refused before anything is read"
    assert caught.value.exit_code == 2
    assert {name: (output / name).read_text(encoding="utf-8") for name in files} == files
    assert sum(path.is_file() for path in output.rglob("*")) == len(files)


def test_a_card_goes_with_the_train_set_that_it_was_written_from(workspace: Workspace, kimi: Contract) -> None:
    output, gate = workspace.root / "train", gate_of(workspace, kimi, "B3", [row("a")])
    manifest = merge([gate], output)
    card = render_card(
        manifest, manifest_sha256=sha256_of(output / "manifest.json"), sizes={file.path: 1 for file in manifest.outputs}
    )
    licensed = card.replace("# license: state it here", "license: mit #")
    assert licensed != card
    (output / "README.md").write_text(licensed, encoding="utf-8")
    assert foreign_files(output, manifest) == []
    with pytest.raises(ConfigError, match=r"found README\.md; move it away"):
        merge([gate], output, mix=MergeSettings(seed=1))
    assert (output / "README.md").read_text(encoding="utf-8") == licensed, "what was added to it is not lost"
    (output / "README.md").write_text(card, encoding="utf-8")
    merge([gate], output, mix=MergeSettings(seed=1))
    assert not (output / "README.md").exists()
    (output / "README.md").write_text(card, encoding="utf-8")
    assert foreign_files(output, read_manifest(output)) == ["README.md"], "a card of the earlier set"


def test_a_readme_of_something_else_is_left_alone(workspace: Workspace, kimi: Contract) -> None:
    output, gate = workspace.root / "train", gate_of(workspace, kimi, "B3", [row("a")])
    merge([gate], output)
    (output / "README.md").write_text("months of work", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"found README\.md; move it away"):
        merge([gate], output)
    assert (output / "README.md").read_text(encoding="utf-8") == "months of work"


def test_a_file_and_the_root_are_refused(workspace: Workspace, kimi: Contract) -> None:
    gate = gate_of(workspace, kimi, "B3", [row("a")])
    (workspace.root / "train").write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigError, match="found a file"):
        merge([gate], workspace.root / "train")
    with pytest.raises(ConfigError, match="expected a folder below another"):
        merge([gate], Path("/"))


def test_a_failed_merge_leaves_the_old_train_set(workspace: Workspace, kimi: Contract) -> None:
    output = workspace.root / "train"
    merge([gate_of(workspace, kimi, "B3", [row("a")])], output)
    before = files_of(output)
    with pytest.raises(StoreError, match="no row remains"):
        merge([gate_of(workspace, kimi, "B4", [row("b", prompt_ids=None)])], output, replace=True)
    assert files_of(output) == before
    assert read_manifest(output).totals.written == 1
    assert not (workspace.root / ".train.merging").exists()


def test_two_merges_at_once(workspace: Workspace, kimi: Contract) -> None:
    gate = gate_of(workspace, kimi, "B3", [row("a")])
    with (
        sole_writer(workspace.root / ".train.lock"),
        pytest.raises(StoreError, match="another process is writing"),
    ):
        merge([gate], workspace.root / "train")


def test_a_parent_that_is_a_file(workspace: Workspace, kimi: Contract) -> None:
    gate = gate_of(workspace, kimi, "B3", [row("a")])
    (workspace.root / "file").write_text("", encoding="utf-8")
    with pytest.raises(StoreError, match=r"cannot be (read or )?written"):
        merge([gate], workspace.root / "file/train")


# --- killed ---------------------------------------------------------------------------------------------

_KILLED = """
import os, signal, sys
from pathlib import Path
from tests.merge.gates import merge
from toolkit.contract import read_contract
from toolkit.gate import open_gate
from toolkit.mix import MergeSettings
from toolkit.store.workspace import Workspace

root, suite, name, calls = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
gate = open_gate(
    Workspace(root).dataset_named(name),
    read_contract("kimi-k2.5"),
    [("strict", suite)],
    allowed_providers=(),
    recheck=lambda *_: (),
)

def advance(rows):
    global calls
    calls -= 1
    if calls == 0:
        os.kill(os.getpid(), signal.SIGKILL)

merge([gate], root / "train", replace=True, advance=advance)
"""


def merge_and_be_killed(workspace: Workspace, name: str, *, at_call: int) -> None:
    """Merge in another process, which is killed the `at_call`th time that it tells of progress."""
    arguments = [str(workspace.root), str(suite_path(workspace)), name, str(at_call)]
    ended = subprocess.run(
        [sys.executable, "-c", _KILLED, *arguments], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False
    )
    assert ended.returncode == -signal.SIGKILL


# Two shards are read, then one part is written: killed on reading, between the passes, and when a part lies there.
@pytest.mark.parametrize("at_call", [1, 2, 3])
def test_killed_in_the_middle(workspace: Workspace, kimi: Contract, at_call: int) -> None:
    gate = gate_of(workspace, kimi, "B3", [row("a")], [row("b")])
    merge_and_be_killed(workspace, "B3", at_call=at_call)
    assert not (workspace.root / "train").exists()
    assert list(workspace.root.rglob("manifest.json")) == []
    leftover = workspace.root / ".train.merging"
    assert leftover.is_dir()
    merge([gate], workspace.root / "train")
    assert len(train_rows(workspace.root / "train")) == 2
    assert not leftover.exists()
    assert visible(workspace.root) == ["datasets", "expectations", "reports", "train"]


def test_killed_while_replacing_leaves_the_old_train_set(workspace: Workspace, kimi: Contract) -> None:
    output = workspace.root / "train"
    merge([gate_of(workspace, kimi, "B3", [row("a")])], output)
    before = files_of(output)
    gate = gate_of(workspace, kimi, "B4", [row("b")], [row("c")])
    merge_and_be_killed(workspace, "B4", at_call=3)
    assert files_of(output) == before
    assert [i.name for i in read_manifest(output).inputs] == ["B3"]
    merge([gate], output, replace=True)
    assert [i.name for i in read_manifest(output).inputs] == ["B4"]


def test_killed_between_the_two_renames(workspace: Workspace, kimi: Contract) -> None:
    """The old train set was moved out of the way, the new one was not yet moved in: the old one comes back."""
    output = workspace.root / "train"
    merge([gate_of(workspace, kimi, "B3", [row("a")])], output)
    before = files_of(output)
    (workspace.root / ".train.merging/new").mkdir(parents=True)
    output.rename(workspace.root / ".train.merging/old")
    with pytest.raises(StoreError, match="no row remains"):
        merge([gate_of(workspace, kimi, "B4", [row("b", prompt_ids=None)])], output, replace=True)
    assert files_of(output) == before


# --- size -----------------------------------------------------------------------------------------------


def test_fifty_thousand_rows_of_four_shards(workspace: Workspace, kimi: Contract) -> None:
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 40, (50_000, 2))
    rows = [
        row(f"s{n}", prompt_ids=list(range(p)), output_ids=list(range(1000, 1000 + o)))
        for n, (p, o) in enumerate(lengths.tolist())
    ]
    gate = gate_of(workspace, kimi, "B3", rows)
    assert len(gate.live.shards) == 4
    manifest = merge([gate], workspace.root / "train")
    assert [output.rows for output in manifest.outputs] == [16_384, 16_384, 16_384, 848]
    assert manifest.totals.prompt_ids == lengths[:, 0].sum()
    assert manifest.totals.supervised_ids == lengths[:, 1].sum()
    table = pa.concat_tables(pq.read_table(workspace.root / "train" / output.path) for output in manifest.outputs)
    assert len(set(table["id"].to_pylist())) == 50_000
    by_id = {f"B3/s{n}/0/0": (p, o) for n, (p, o) in enumerate(lengths.tolist())}
    for found in table.slice(25_000, 500).to_pylist():
        p, o = by_id[found["id"]]
        assert found["input_ids"] == [*range(p), *range(1000, 1000 + o)]
        assert found["loss_mask"] == [0] * p + [1] * o


@pytest.mark.parametrize("bits", [0, 1, 7])
def test_buckets_hold_rows_in_the_order_of_their_first_bits(tmp_path: Path, bits: int) -> None:
    schema = pa.schema([pa.field("order", pa.uint64()), pa.field("name", pa.string())])
    order = np.random.default_rng(bits).integers(0, 2**64, 300, np.uint64)
    rows = pa.table({"order": order, "name": [f"{n:03d}" for n in range(300)]}, schema=schema)
    with Buckets(tmp_path, schema, bits=bits) as buckets:
        for start, end in ((0, 100), (100, 100), (100, 300)):
            which = buckets.bucket_of(order[start:end])
            dealt = np.argsort(which, kind="stable")
            buckets.add(rows.slice(start, end - start).take(pa.array(dealt)), which[dealt])
    drained = list(buckets.drain())
    assert len(drained) == {0: 1, 1: 2, 7: len(set((order >> np.uint64(57)).tolist()))}[bits]
    found = pa.concat_tables(table.sort_by("order") for table in drained).to_pylist()
    assert found == sorted(rows.to_pylist(), key=lambda r: r["order"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dealt", [[9], [1] * 9, [4, 0, 5]])
def test_parts_do_not_depend_on_how_rows_are_dealt(dealt: list[int]) -> None:
    rows = pa.table({"weight": [3, 3, 3, 3, 30, 1, 1, 1, 1]})
    starts = np.cumsum([0, *dealt]).tolist()
    parts = cut_parts(
        (rows.slice(start, count) for start, count in zip(starts, dealt, strict=False)),
        PartCutter(lambda table: table["weight"].to_numpy(), max_rows=3, max_bytes=10),
    )
    assert [part["weight"].to_pylist() for part in parts] == [[3, 3, 3], [3], [30], [1, 1, 1], [1]]


def test_the_live_list_of_a_merged_dataset_is_untouched(workspace: Workspace, kimi: Contract) -> None:
    gate = gate_of(workspace, kimi, "B3", [row("a")])
    before = files_of(gate.dataset.folder)
    merge([gate], workspace.root / "train")
    assert files_of(gate.dataset.folder) == before
    assert read_live(gate.dataset) == gate.live


def test_a_manifest_of_another_version(workspace: Workspace, kimi: Contract) -> None:
    manifest: Manifest = merge([gate_of(workspace, kimi, "B3", [row("a")])], workspace.root / "train")
    path = workspace.root / "train/manifest.json"
    path.write_bytes(msgspec.json.encode(replace(manifest, version=1)))
    with pytest.raises(StoreError, match="expected manifest version 3, found 1"):
        read_manifest(workspace.root / "train")
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(StoreError, match="expected a manifest"):
        read_manifest(workspace.root / "train")
