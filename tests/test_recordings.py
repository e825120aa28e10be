"""Each of the 20 recorded replies, through import, with its outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from toolkit.audit.evidence import judge
from toolkit.audit.gather import measure_shard
from toolkit.contract import read_contract
from toolkit.importing import ImportOptions, import_files
from toolkit.store.journal import read_failures
from toolkit.store.shards import read_live, read_shard
from toolkit.store.workspace import Dataset, Workspace
from toolkit.vocabulary import Vocabulary, load_vocabulary

from .conftest import shared_file

# (line, path's end, outcome under kimi-k2.5): n_ids − completion_tokens and rendered − reported prompt ids,
# or the reason of the failure.
KIMI_K25 = [
    (0, "avian-kimi/tool_streaming.yaml#0", ("avian", None, 3, -7)),
    (1, "avian-kimi/tool_streaming.yaml#1", ("avian", None, 2, -7)),
    (2, "groq-kimi-k2/simple.yaml#0", "model_mismatch"),
    (3, "groq-kimi-k2/tool.yaml#0", "model_mismatch"),
    (4, "groq-kimi-k2/tool.yaml#1", "model_mismatch"),
    (5, "glm/simple.yaml#0", "model_mismatch"),
    (6, "glm/tool.yaml#0", "model_mismatch"),
    (7, "glm/tool.yaml#1", "model_mismatch"),
    (8, "grok/simple.yaml#0", "model_mismatch"),
    (9, "Common/kimi/simple.yaml#0", ("openrouter", "Inceptron", 1, 0)),
    (10, "Common/kimi/tool.yaml#0", ("openrouter", "Chutes", 0, 0)),
    (11, "Common/kimi/tool.yaml#1", ("openrouter", "Chutes", 0, 0)),
    (12, "Common/kimi/tool_streaming.yaml#0", ("openrouter", "Chutes", 0, 0)),
    (13, "Common/kimi/tool_streaming.yaml#1", ("openrouter", "Chutes", 0, 0)),
    (14, "test_openrouter_errors_raised.yaml#0", "http_429"),
    (15, "test_openrouter_map_messages_reasoning.yaml#0", "model_mismatch"),
    (16, "test_openrouter_stream_error.yaml#0", "http_400"),
    (17, "test_openrouter_thinking_high_emits_effort_high.yaml#0", "model_mismatch"),
    (18, "raises_appropriate_auth_error.yml#0", "unauthorized"),
    (19, "handles_context_length_exceeded_errors.yml#0", "http_400"),
]

# Prompt ids that were reported where the prompt was the one we render.
RENDERED = {9: 21, 10: 69, 11: 108, 12: 69, 13: 110}


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Dataset:
    dataset = Workspace(tmp_path_factory.mktemp("recordings")).dataset_named("R1")
    file = shared_file("recordings/chat_completions.jsonl")
    counts = import_files(dataset, [file], vocabulary.contract, vocabulary, ImportOptions())
    assert (counts.lines, counts.rows, counts.failures, counts.already_there) == (20, 7, 13, 0)
    return dataset


def rows_of(dataset: Dataset) -> list[dict[str, Any]]:
    return [row for shard in read_live(dataset).shards for row in read_shard(dataset, shard).to_pylist()]


@pytest.mark.parametrize(("line", "name", "outcome"), KIMI_K25)
def test_each_recording_comes_out_as_measured(imported: Dataset, line: int, name: str, outcome: Any) -> None:
    rows = [row for row in rows_of(imported) if row["sample_id"].endswith(name)]
    failures = [f for f in read_failures(imported.failures) if f.where.endswith(f"line {line + 1}")]
    if isinstance(outcome, str):
        assert not rows
        assert [(f.reason, f.final) for f in failures] == [(outcome, outcome != "http_429")]
        return
    (row,) = rows
    source, provider, count_difference, prompt_difference = outcome
    assert not failures
    assert (row["source"], row["provider"]) == (source, provider)
    assert (row["rebuild_status"], row["ids_source"]) == ("complete", "rebuilt")
    assert len(row["output_ids"]) - row["completion_tokens"] == count_difference
    assert len(row["prompt_ids"]) - row["prompt_tokens"] == prompt_difference
    assert row["output_ids"][-1] == 163586
    assert row["output_ids"].count(163607) == 1


@pytest.mark.parametrize(("line", "count"), RENDERED.items())
def test_rendered_prompts_have_the_reported_length(imported: Dataset, line: int, count: int) -> None:
    (row,) = [row for row in rows_of(imported) if row["sample_id"].endswith(KIMI_K25[line][1])]
    assert len(row["prompt_ids"]) == row["prompt_tokens"] == count


def test_avian_trims_the_reasoning_and_chutes_does_not(imported: Dataset) -> None:
    starts = [(row["source"], row["reasoning"][0]) for row in rows_of(imported)]
    assert [c for source, c in starts if source == "avian"] == ["T", "T"]
    assert [c for source, c in starts if source == "openrouter"] == [" "] * 5


def test_importing_twice_adds_nothing(imported: Dataset, vocabulary: Vocabulary) -> None:
    before = imported.live.read_bytes()
    failures = {p.name: p.read_bytes() for p in imported.failures.iterdir()}
    file = shared_file("recordings/chat_completions.jsonl")
    counts = import_files(imported, [file], vocabulary.contract, vocabulary, ImportOptions())
    assert (counts.lines, counts.rows, counts.failures, counts.already_there) == (20, 0, 13, 7)
    assert imported.live.read_bytes() == before
    assert {p.name: p.read_bytes() for p in imported.failures.iterdir()} == failures


def test_groq_rows_become_rows_under_their_own_contract(tmp_path: Path) -> None:
    contract = read_contract("kimi-k2-instruct")
    dataset = Workspace(tmp_path).dataset_named("G1")
    file = shared_file("recordings/chat_completions.jsonl")
    import_files(dataset, [file], contract, load_vocabulary(contract), ImportOptions())
    rows = rows_of(dataset)
    assert [row["source"] for row in rows] == ["groq"] * 3
    # The tool row's JSON was serialised again: with the space after the colon it would be one id longer.
    assert [len(row["output_ids"]) - row["completion_tokens"] for row in rows] == [0, -1, 0]
    assert all(163607 not in row["output_ids"] for row in rows)


def test_the_groq_tool_row_is_contradicted_because_its_json_was_written_anew(tmp_path: Path) -> None:
    contract = read_contract("kimi-k2-instruct")
    vocabulary = load_vocabulary(contract)
    dataset = Workspace(tmp_path).dataset_named("G2")
    import_files(dataset, [shared_file("recordings/chat_completions.jsonl")], contract, vocabulary, ImportOptions())
    (shard,) = read_live(dataset).shards
    frame = pl.from_arrow(measure_shard(dataset, shard, contract, vocabulary))
    assert isinstance(frame, pl.DataFrame)
    facts = judge(frame, contract).facts.sort("sample_id")
    told = ["structure", "tool_fault", "respaced_ids", "count_unexplained", "evidence", "evidence_reason"]
    assert facts.select(told).rows() == [
        (None, None, None, 0, "counted", None),
        # The model wrote a space after the colon, and that is one id more than what came.
        (None, None, 1, -1, "contradicted", "tool_json_reserialised"),
        (None, None, None, 0, "counted", None),
    ]
