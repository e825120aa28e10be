"""A dataset card: a head that the hub can read, and nothing in it that came from outside and is live."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import yaml

from tests.conftest import absent
from toolkit.columns import TRAIN_SCHEMA
from toolkit.errors import StoreError
from toolkit.manifest import (
    DatasetInput,
    Manifest,
    OutputFile,
    Proof,
    Proved,
    SourceShare,
    SuiteInput,
    Totals,
)
from toolkit.mix import MergeSettings
from toolkit.records import Severity
from toolkit.report.card import render_card

from .builder import HOSTILE

_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)


def dataset(name: str = "B3", **changes: Any) -> DatasetInput:
    fields: dict[str, Any] = {
        "name": name, "verdict_sha256": "ab" * 32, "kernel_version": 4, "prompts_sha256": None,
        "allowed_providers": (), "quarantine_sha256": "cd" * 32, "rows": 1010, "written": 1000,
        "suites": (SuiteInput(name="kimi-k2.5", path="kimi-k2.5.json", sha256="ef" * 32),), "shards": (),
        "validation_rows": 0, "ids": 50_000, "prompt_ids": 10_000, "supervised_ids": 40_000,
        "dropped": {"quarantined": 10}, "quarantined_by_expectation": {"reencode_equal": 7, "evidence_given": 4},
    }  # fmt: skip
    return DatasetInput(**fields | changes)


def manifest(**changes: Any) -> Manifest:
    fields: dict[str, Any] = {
        "tool_version": "0.3.0", "seed": 0, "mix": MergeSettings(), "columns": tuple(TRAIN_SCHEMA.names),
        "contract": "kimi-k2.5", "contract_sha256": "c0" * 32, "inputs": (dataset(),),
        "sources": (
            SourceShare(source="sglang", provider=None, rows=400, validation_rows=0, ids=20_000, prompt_ids=4_000,
                        supervised_ids=16_000),
            SourceShare(source="openrouter", provider="Chutes", rows=600, validation_rows=0, ids=30_000,
                        prompt_ids=6_000, supervised_ids=24_000),
        ),
        "totals": Totals(rows=1010, written=1000, validation_rows=0, dropped={"quarantined": 10},
                         quarantined_by_expectation={"reencode_equal": 7, "evidence_given": 4}, repeated=0, ids=50_000,
                         prompt_ids=10_000, supervised_ids=40_000),
        "outputs": (OutputFile(path="shards/part-00000.parquet", sha256="aa" * 32, rows=1000),),
    }  # fmt: skip
    return Manifest(**fields | changes)


SIZES = {"shards/part-00000.parquet": 4_000, "validation/part-00000.parquet": 200}


def render(made: Manifest, manifest_sha256: str = "12" * 32) -> str:
    return render_card(made, manifest_sha256=manifest_sha256, sizes=SIZES)


def card(made: Manifest) -> tuple[dict[str, Any], str]:
    """(the YAML head, the Markdown)."""
    _, head, body = render(made).split("---\n", 2)
    return yaml.safe_load(head), body


def test_the_head_says_where_the_rows_lie_and_what_they_are() -> None:
    head, _ = card(manifest())
    assert head["configs"] == [
        {"config_name": "default", "data_files": [{"split": "train", "path": "shards/part-*.parquet"}]}
    ]
    assert head["dataset_info"]["splits"] == [{"name": "train", "num_bytes": 4000, "num_examples": 1000}]
    assert head["size_categories"] == ["1K<n<10K"]
    assert "license" not in head


def hub() -> Any:
    """The hub's own library, which benches bring."""
    try:
        import datasets
    except ImportError:
        absent("datasets is missing: make setup-bench")
    return datasets


def test_the_features_are_those_that_the_hub_reads_out_of_the_files() -> None:
    datasets = hub()
    head, _ = card(manifest())
    assert datasets.Features._from_yaml_list(head["dataset_info"]["features"]) == datasets.Features.from_arrow_schema(
        TRAIN_SCHEMA
    )


def test_the_hub_takes_the_whole_head() -> None:
    datasets = hub()
    head, _ = card(manifest())
    read = datasets.DatasetInfo._from_yaml_dict(head["dataset_info"])
    assert (read.splits["train"].num_examples, read.splits["train"].num_bytes) == (1000, 4000)


def test_a_validation_side_is_a_split() -> None:
    made = manifest(
        totals=replace(manifest().totals, validation_rows=50),
        outputs=(OutputFile(path="shards/part-00000.parquet", sha256="aa" * 32, rows=950),),
        validation_outputs=(OutputFile(path="validation/part-00000.parquet", sha256="bb" * 32, rows=50),),
    )
    head, body = card(made)
    assert [split["num_examples"] for split in head["dataset_info"]["splits"]] == [950, 50]
    assert head["configs"][0]["data_files"][1] == {"split": "validation", "path": "validation/part-*.parquet"}
    assert "1,000 rows, 50 of them for validation, with 50,000 token ids" in body


def test_the_text_says_who_answered_how_it_was_proved_and_what_is_not_there() -> None:
    proof = Proof(
        suite=SuiteInput(name="train", path="train.json", sha256="dd" * 32),
        results=(Proved(id="a", severity=Severity.CRITICAL, success=True, element_count=1000, unexpected_count=0),),
    )
    _, body = card(manifest(proof=proof))
    for expected in (
        "1,000 rows, with 50,000 token ids: 10,000 of prompts, 40,000 that bear loss.",
        "| openrouter · Chutes | 600 | 60.0 % | 6,000 | 24,000 |",
        "| sglang | 400 | 40.0 % | 4,000 | 16,000 |",
        "under contract `kimi-k2.5 c0c0c0c0c0c0`",
        "| `B3` | 1,010 | 1,000 | `kimi-k2.5 efefefefefef` | `abababababab` |",
        "held against suite `train dddddddddddd`: 1 of 1 expectation hold",
        "10 rows of 1,010: 10 quarantined.",
        "- `reencode_equal`: 7 rows",
        "- reasoning: supervised",
    ):
        assert expected in body


def test_a_column_that_nobody_knows_is_refused() -> None:
    with pytest.raises(StoreError, match="expected columns of a train set, found surprise"):
        render(manifest(columns=("id", "surprise")))


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_are_neither_yaml_nor_markup(text: str) -> None:
    made = manifest(
        contract=text, contract_sha256=text, tool_version=text,
        inputs=(dataset(text, verdict_sha256=text, dropped={text: 3}, quarantined_by_expectation={text: 3}),
                dataset("B4")),
        sources=(replace(manifest().sources[0], source=text, provider=text),),
        totals=replace(manifest().totals, dropped={text: 3}, quarantined_by_expectation={text: 3}),
    )  # fmt: skip
    source = render(made, text)
    assert source.split("---\n", 2)[1] == render(manifest()).split("---\n", 2)[1]
    assert not set(source) & set("\x1b\x07\x9b\r\t\x00\u202e\u2066\u200b\ufeff\u2028\ud800\ufffe")
    outside = _CODE.sub("", source)
    assert not any(live in outside for live in ("](", "<script", "<img", "javascript:", "@torvalds", "www.", "[link"))
    assert len(source) < 40_000
    assert source.encode()
