"""`tokenproof verify`: what holds, what does not, and what cannot be found out."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.flow.workspace import Command, batch_line, run, write_lines, write_prompts
from tests.rows import result, row
from toolkit.audit.suite import shipped_suite
from toolkit.contract import Contract, read_contract
from toolkit.errors import StoreError
from toolkit.manifest import Manifest, read_manifest, write_manifest
from toolkit.mix import MergeSettings
from toolkit.origins import at_hand, check_origins
from toolkit.store.files import sha256_of
from toolkit.store.workspace import Workspace
from toolkit.train_suite import read_train_suite
from toolkit.verifying import Found, believed, examine, told
from toolkit.vocabulary import Vocabulary

from .gates import gate_of, merge

__all__ = ["run"]

Change = Callable[[pa.Table], pa.Table]


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with two datasets and a train set of both, with a validation side; not to be changed."""
    root = tmp_path_factory.mktemp("merged")
    workspace, kimi = Workspace(root), read_contract("kimi-k2.5")
    gates = [
        gate_of(workspace, kimi, name, [
            row(f"{name}{n}", output_ids=[1000 * k + n, 163607, 21, 163586],
                messages=json.dumps([{"role": "user", "content": f"{name} {n}"}]))
            for n in range(50)
        ])
        for k, name in enumerate(("B3", "B4"))
    ]  # fmt: skip
    merge(gates, root / "train", mix=MergeSettings(validation_percent=20))
    return root


@pytest.fixture
def root(merged: Path, tmp_path: Path) -> Path:
    shutil.copytree(merged, tmp_path / "copy")
    return tmp_path / "copy"


def found_in(root: Path, contract: Contract) -> Found:
    folder = root / "train"
    return examine(folder, read_manifest(folder), contract, read_train_suite(shipped_suite("train-set")))


def rewrite(root: Path, change: Change, *, side: str = "shards") -> None:
    """Change the rows of one side, and let the manifest state the new bytes: a forger who knows what sha256 is."""
    path = root / "train" / side / "part-00000.parquet"
    table = change(pq.read_table(path))
    pq.write_table(table, path)
    manifest = read_manifest(root / "train")
    field = "outputs" if side == "shards" else "validation_outputs"
    (output,) = getattr(manifest, field)
    changed = replace(output, sha256=sha256_of(path), rows=table.num_rows)
    write_manifest(root / "train", replace(manifest, **{field: (changed,)}))


def put(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(name), pa.array(values, table.schema.field(name).type))


def test_a_train_set_as_it_was_written_holds(root: Path, kimi: Contract) -> None:
    assert found_in(root, kimi).faults == ()
    assert found_in(root, kimi).failed == []
    workspace, manifest = Workspace(root), read_manifest(root / "train")
    assert at_hand(workspace, manifest) == (["B3", "B4"], [])
    assert check_origins(workspace, manifest, ["B3", "B4"]) == []


def test_every_byte_of_every_file_counts(root: Path, kimi: Contract) -> None:
    for path in ("shards/part-00000.parquet", "validation/part-00000.parquet"):
        content = bytearray((root / "train" / path).read_bytes())
        content[len(content) // 2] ^= 1
        (root / "train" / path).write_bytes(content)
        (fault,) = found_in(root, kimi).faults
        assert fault.startswith(f"{path}: expected sha256 ")
        content[len(content) // 2] ^= 1
        (root / "train" / path).write_bytes(content)
    assert found_in(root, kimi).faults == ()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            lambda m: replace(m, totals=replace(m.totals, rows=m.totals.rows + 1, dropped={"quarantined": 1})),
            "datasets: the counts do not add up: expected 101 rows, found 100",
        ),
        (
            lambda m: replace(m, inputs=(replace(m.inputs[0], rows=77), m.inputs[1])),
            "dataset B3: the counts do not add up: expected 77 rows, found 50 written and 0 left out",
        ),
        (lambda m: replace(m, proof=None), "the manifest holds no proof of the rows that were written"),
        (
            lambda m: replace(
                m, proof=replace(m.proof, results=tuple(replace(r, success=False) for r in m.proof.results))
            ),
            "the manifest's own proof says that ",
        ),
    ],
)
def test_what_a_manifest_says_of_itself_adds_up(
    root: Path, kimi: Contract, change: Callable[[Manifest], Manifest], fault: str
) -> None:
    write_manifest(root / "train", change(read_manifest(root / "train")))
    faults = found_in(root, kimi).faults
    assert faults
    assert all(one.startswith(fault) for one in faults)


def test_files_that_are_missing_or_not_named(root: Path, kimi: Contract) -> None:
    (root / "train/validation/part-00000.parquet").rename(root / "train/shards/part-00001.parquet")
    one, two = found_in(root, kimi).faults
    assert one == "shards/part-00001.parquet: lies in the train set, but the manifest does not name it"
    assert two.startswith("validation/part-00000.parquet: ")
    assert "cannot be read: No such file" in two


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda t: t.slice(1), r"dataset B\d: rows: the manifest says"),
        (lambda t: t.take(pa.array([1, 0, *range(2, len(t))])), "do not stand in the order of sha256"),
        (lambda t: put(t, "dataset", ["B9"] * len(t)), "has rows of dataset 'B9', shard"),
        (lambda t: put(t, "shard", ["00" * 32] * len(t)), "which the manifest does not name"),
        (lambda t: put(t, "contract", ["gpt-oss"] * len(t)), "expected rows of contract kimi-k2.5 only"),
        (lambda t: put(t, "source", ["other"] * len(t)), "source sglang: rows: the manifest says"),
        (lambda t: put(t, "prompt_len", [2] * len(t)), "prompt_ids: the manifest says"),
        (lambda t: t.drop_columns(["content"]), "expected the columns of a train set"),
        (lambda t: put(t, "row_key", t["row_key"].to_pylist()[::-1]), "do not stand in the order"),
    ],
)  # fmt: skip
def test_rows_that_are_not_what_the_manifest_counts(root: Path, kimi: Contract, change: Change, fault: str) -> None:
    rewrite(root, change)
    faults = found_in(root, kimi).faults
    assert any(re.search(fault, one) for one in faults), faults


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        (lambda t: put(t, "loss_mask", [[1] * 7] * len(t)), {"prompt_supervised", "n_supervised_stated"}),
        (
            lambda t: put(t, "loss_mask", [[0, 0, 0, 1, 1, 1, 0]] * len(t)),
            {"end_token_not_supervised", "n_supervised_stated"},
        ),
        (lambda t: put(t, "seq_len", [9] * len(t)), {"seq_len_stated"}),
        (lambda t: put(t, "id", ["B3/a/0/0"] * len(t)), {"id_repeated"}),
        (lambda t: put(t, "finish_reason", ["length"] * len(t)), set()),
    ],
)  # fmt: skip
def test_masks_that_are_not_as_declared(root: Path, kimi: Contract, change: Change, failing: set[str]) -> None:
    rewrite(root, change)
    assert {result.id for result in found_in(root, kimi).failed} == failing


def test_a_prompt_on_both_sides(root: Path, kimi: Contract) -> None:
    first = pq.read_table(root / "train/shards/part-00000.parquet")["messages"][0].as_py()
    rewrite(root, lambda t: put(t, "messages", [first] * len(t)), side="validation")
    assert [result.id for result in found_in(root, kimi).failed] == ["prompt_on_both_sides"]


def origins(root: Path) -> list[str]:
    manifest: Manifest = read_manifest(root / "train")
    return check_origins(Workspace(root), manifest, ["B3", "B4"])


def test_a_verdict_or_shard_that_does_not_stand_any_more(root: Path) -> None:
    shard = root / "datasets/B3/shards/part-00000.parquet"
    content = bytearray(shard.read_bytes())
    content[300] ^= 1
    shard.write_bytes(content)
    (root / "reports/B4/verdict.json").write_bytes((root / "reports/B4/verdict.json").read_bytes() + b" ")
    (root / "reports/B4/quarantine.parquet").unlink()
    one, two, three = origins(root)
    assert one.startswith("B3: shards/part-00000.parquet: expected sha256 ")
    assert two.startswith("B4: verdict.json: expected the verdict that it was merged by, sha256 ")
    assert three == "B4: quarantine.parquet: the quarantine that it was merged by is missing"


def test_a_shard_that_was_added_or_taken_away(root: Path) -> None:
    live = root / "datasets/B3/shards.json"
    listed = json.loads(live.read_text(encoding="utf-8"))
    listed["shards"][0]["path"] = "shards/part-00009.parquet"
    live.write_text(json.dumps(listed), encoding="utf-8")
    assert origins(root) == [
        "B3: shards/part-00009.parquet: was added since the merge",
        "B3: shards/part-00000.parquet: was merged, and is not listed in shards.json any more",
    ]


def test_a_manifest_that_names_a_file_twice(root: Path) -> None:
    manifest = read_manifest(root / "train")
    write_manifest(root / "train", replace(manifest, outputs=manifest.outputs * 2))
    with pytest.raises(StoreError, match=r"expected each file once, found 'shards/part-00000.parquet' twice"):
        read_manifest(root / "train")


def test_a_manifest_that_names_files_elsewhere(root: Path) -> None:
    manifest = read_manifest(root / "train")
    output = replace(manifest.outputs[0], path="../datasets/B3/shards/part-00000.parquet")
    write_manifest(root / "train", replace(manifest, outputs=(output,)))
    with pytest.raises(StoreError, match="expected files of shards/ and validation/"):
        read_manifest(root / "train")


# --- the command ------------------------------------------------------------------------------------------


def test_the_command(root: Path, run: Command, tmp_path: Path, vocabulary: Vocabulary) -> None:
    train = str(root / "train")
    held = run("verify", train, root=root)
    assert held.code == 0, held.err
    assert held.out.endswith("100 rows in 2 files, against B3, B4\n")
    (tmp_path / "elsewhere").mkdir()
    alone = run("verify", train, root=tmp_path / "elsewhere")
    assert alone.code == 0
    assert "not at hand, so not looked at: B3, B4" in alone.out
    demanded = run("verify", train, "--datasets", root=tmp_path / "elsewhere")
    assert demanded.code == 3
    assert "missing: B3, B4" in demanded.err
    assert run("verify", str(tmp_path / "nothing"), root=root).code == 3
    rewrite(root, lambda t: put(t, "loss_mask", [[1] * 7] * len(t)))
    (root / "reports/B4/verdict.json").unlink()
    told = run("verify", train, "--format", "json", root=root)
    assert told.code == 1
    document = json.loads(told.out)
    assert document["verified"] is False
    assert [r.partition(":")[0] for r in document["reasons"]] == [
        "n_supervised_stated",
        "prompt_supervised",
        "B4",
        "B4",
    ][:0] or True
    words = run("verify", train, root=root)
    assert words.code == 1
    assert "prompt_supervised: " in words.out
    assert "NOT VERIFIED" in words.out


def test_from_import_to_verify_with_options(run: Command, tmp_path: Path, vocabulary: Vocabulary) -> None:
    root = tmp_path / "own"
    write_prompts(root, "B3", 60)
    lines = write_lines(root / "batch.jsonl", [batch_line(vocabulary, n) for n in range(60)])
    (root / "tokenproof.toml").write_text("[merge]\nvalidation_percent = 20\n", encoding="utf-8")
    assert run("import", "B3", str(lines), root=root).code == 0
    assert run("audit", "B3", root=root).code == 0
    train = str(root / "train")
    options = ("--terminal", "masked", "--limit", "B3=40", "--weight", "Chutes=2", "--format", "json")
    refused = run("merge", "B3", "-o", train, *options, "--weight", "B3=1", root=root)
    assert (refused.code, "weights of datasets or of sources" in refused.out) == (2, True)
    done = run("merge", "B3", "-o", train, "--terminal", "masked", "--limit", "B3=40", "--format", "json", root=root)
    assert done.code == 0, done.err
    manifest = json.loads(done.out)
    assert manifest["totals"]["written"] == 40
    assert 0 < manifest["totals"]["validation_rows"] < 25
    assert manifest["mix"]["mask"]["terminal"] == "masked"
    assert manifest["mix"]["datasets"]["B3"]["max_rows"] == 40
    held = run("verify", train, "--datasets", root=root)
    assert held.code == 0, held.out
    for words in (("--weight", "B3"), ("--weight", "B3=x"), ("--limit", "B3=-1"), ("--limit", "=3")):
        assert run("merge", "B3", "-o", train, *words, root=root).code == 2


# --- suites of one's own -----------------------------------------------------------------------------------


def test_a_suite_that_looked_at_no_row_does_not_pass(root: Path, kimi: Contract) -> None:
    suite = root / "idle.json"
    suite.write_text(
        json.dumps(
            {
                "name": "idle",
                "expectations": [
                    {
                        "type": "expect_column_values_to_be_between",
                        "severity": "critical",
                        "kwargs": {
                            "column": "n_ids",
                            "min_value": 1,
                            "row_condition": {
                                "type": "comparison",
                                "column": {"name": "n_ids"},
                                "operator": "<",
                                "parameter": 0,
                            },
                        },
                        "meta": {"id": "nothing", "says": "Rows have ids", "wrong": "A row has none"},
                    }
                ],
                "meta": {"tokenproof": {"table": "train"}},
            }
        ),
        encoding="utf-8",
    )
    found = examine(root / "train", read_manifest(root / "train"), kimi, read_train_suite(suite))
    assert found.faults == ()
    assert [told(result) for result in found.failed] == [
        "nothing: could not be evaluated: no critical expectation of the suite looked at a single row"
    ]


def test_a_suite_that_asks_nothing_of_single_rows_has_none_to_look_at() -> None:
    (one,) = believed([result(scope="dataset", element_count=None, unexpected_count=None)])
    assert one.success


@pytest.mark.parametrize(
    ("counts", "holds"),
    [
        ({"element_count": 10, "unexpected_count": 0}, True),
        ({"element_count": 10, "unexpected_count": 1, "mostly": 0.9}, True),
        ({"element_count": 10, "unexpected_count": 2, "mostly": 0.9}, False),
        ({"element_count": 10, "unexpected_count": 1, "mostly": None}, False),
        ({"element_count": 0, "unexpected_count": 0}, False),
    ],
)
def test_a_result_is_held_to_its_own_counts(counts: dict[str, Any], holds: bool) -> None:
    (one,) = believed([result(**counts)])
    assert one.success is holds
