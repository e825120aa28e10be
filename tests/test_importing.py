"""Import: what each line becomes, what is said about it, and that a kill at any point changes nothing."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolkit.cli.importing import summary_of
from toolkit.contract import Contract
from toolkit.errors import ConfigError, StoreError
from toolkit.importing import ImportCounts, ImportOptions, count_lines, import_files
from toolkit.records import Failure
from toolkit.rows import RowBuilder
from toolkit.store import shard_writer
from toolkit.store.journal import read_failures
from toolkit.store.listing import seal_rows
from toolkit.store.shards import read_live, read_shard, unlisted_shards
from toolkit.store.workspace import Dataset, Workspace
from toolkit.vocabulary import Vocabulary

from .kills import count_steps, die_at

Import = Callable[..., ImportCounts]
MODEL = "moonshotai/kimi-k2.5"


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return Workspace(tmp_path).dataset_named("B3")


@pytest.fixture
def do_import(dataset: Dataset, kimi: Contract, vocabulary: Vocabulary, tmp_path: Path) -> Import:
    """`do_import(line, line, …, option=…)`: the lines stand in lines.jsonl."""

    def go(*lines: Any, into: Dataset = dataset, name: str = "lines.jsonl", **options: Any) -> ImportCounts:
        path = write(tmp_path / name, *lines)
        return import_files(into, [path], kimi, vocabulary, ImportOptions(**options))

    return go


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def raw(sample_id: str, content: str = "x", **changes: Any) -> dict[str, Any]:
    line = {"sample_id": sample_id, "content": content, "finish_reason": "stop", "mode": "instant", "model": MODEL}
    return {key: value for key, value in (line | changes).items() if value is not ...}


def batch(sample_id: str, **head: Any) -> dict[str, Any]:
    message = {"reasoning": " so", "content": " yes"}
    body = {"model": MODEL, "choices": [{"finish_reason": "stop", "message": message}], **head}
    return {"custom_id": sample_id, "response": {"status_code": 200, "body": body}}


def recorded(sample_id: str, request: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    body = batch("")["response"]["body"] | changes.pop("head", {})
    asked = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]} | (request or {})
    return {"id": sample_id, "request": asked, "status": 200, "body": json.dumps(body), **changes}


def ask(dataset: Dataset, *prompts: dict[str, Any]) -> None:
    dataset.folder.mkdir(parents=True, exist_ok=True)
    write(dataset.prompts, *prompts)


def user(sample_id: str, **options: Any) -> dict[str, Any]:
    return {"id": sample_id, "messages": [{"role": "user", "content": f"say {sample_id}"}], **options}


def rows_of(dataset: Dataset) -> list[dict[str, Any]]:
    rows = [row for shard in read_live(dataset).shards for row in read_shard(dataset, shard).to_pylist()]
    return sorted(rows, key=lambda row: (row["sample_id"], row["turn"], row["sample_index"]))


def failures_of(dataset: Dataset) -> list[Failure]:
    return sorted(read_failures(dataset.failures), key=lambda failure: failure.where)


def sums(counts: ImportCounts) -> tuple[int, int, int, int, int]:
    found = (counts.lines, counts.rows, counts.replaced, counts.failures, counts.already_there)
    assert found[0] == sum(found[1:])
    return found


# --- sums ----------------------------------------------------------------------------------------


def test_every_line_is_counted_once(dataset: Dataset, do_import: Import) -> None:
    lines = [raw("a"), raw("a"), raw("a", "y"), raw("b"), {"sample_id": "c", "error": {"message": "no"}}, [1], raw("d")]
    assert sums(do_import(*lines)) == (7, 3, 0, 3, 1)
    assert sums(do_import(*lines)) == (7, 0, 0, 3, 4)
    assert [row["sample_id"] for row in rows_of(dataset)] == ["a", "b", "d"]
    assert [failure.reason for failure in failures_of(dataset)] == ["id_conflict", "http_502", "line_invalid"]


def test_a_conflict_names_both_places(dataset: Dataset, do_import: Import) -> None:
    lines = [raw("a"), raw("b"), raw("a", "y")]
    for _ in range(2):
        do_import(*lines)
        (failure,) = failures_of(dataset)
        assert failure.where == "lines.jsonl: line 3"
        assert "found one in lines.jsonl: line 1 and another in lines.jsonl: line 3" in failure.detail
        assert json.loads(failure.body or "")["content"] == "y"
    do_import(raw("b", "z"), name="other.jsonl")
    failure = next(f for f in failures_of(dataset) if f.where.startswith("other"))
    assert "found one in row 1 of shards/part-00000.parquet and another in other.jsonl: line 1" in failure.detail


def test_a_new_answer_replaces_an_imported_one_where_that_is_asked(dataset: Dataset, do_import: Import) -> None:
    do_import(raw("a"), raw("b"))
    refused = do_import(raw("a", "y"), raw("b"), name="new.jsonl")
    assert (sums(refused), refused.other_answers) == ((2, 0, 0, 1, 1), 1)
    (failure,) = failures_of(dataset)
    assert failure.detail.endswith("; --replace takes the new one")
    taken = do_import(raw("a", "y"), raw("b"), name="new.jsonl", replace=True)
    assert (sums(taken), taken.other_answers) == ((2, 0, 1, 0, 1), 0)
    assert [row["content"] for row in rows_of(dataset)] == ["y", "x"]
    assert failures_of(dataset) == []
    assert sums(do_import(raw("a", "y"), raw("b"), name="new.jsonl", replace=True)) == (2, 0, 0, 0, 2)


def test_of_two_answers_in_the_lines_themselves_none_replaces_the_other(dataset: Dataset, do_import: Import) -> None:
    do_import(raw("a"))
    for lines, content in (([raw("a"), raw("a", "y")], "x"), ([raw("a", "y"), raw("a", "z")], "y")):
        counts = do_import(*lines, name="new.jsonl", replace=True)
        assert (counts.failures, counts.other_answers) == (1, 0)
        assert rows_of(dataset)[0]["content"] == content


def test_an_answer_without_its_prompt_replaces_none_that_has_it(dataset: Dataset, do_import: Import) -> None:
    do_import(recorded("a"))
    counts = do_import(raw("a", "y"), name="new.jsonl", replace=True)
    assert (sums(counts), counts.other_answers) == ((1, 0, 0, 1, 0), 0)
    assert rows_of(dataset)[0]["content"] == " yes"


@pytest.mark.parametrize("origin", ["generate", "rebuild"])
def test_another_answer_never_replaces_a_row_that_may_have_been_generated(
    dataset: Dataset, do_import: Import, kimi: Contract, origin: str
) -> None:
    do_import(raw("a"))
    (row,) = rows_of(dataset)
    other = Workspace(dataset.folder.parent.parent).dataset_named("B4")
    seal_rows(other, [row | {"origin": origin}], contract=kimi.name)
    counts = do_import(raw("a", "y"), into=other, replace=True)
    assert (sums(counts), counts.other_answers) == ((1, 0, 0, 1, 0), 0)
    assert rows_of(other)[0]["content"] == "x"


def test_a_line_that_is_no_answer_leaves_its_identity_to_the_next(dataset: Dataset, do_import: Import) -> None:
    lines = [{"sample_id": "a", "error": {"message": "busy"}}, raw("a")]
    assert sums(do_import(*lines)) == (2, 1, 0, 1, 0)
    assert sums(do_import(*lines)) == (2, 0, 0, 1, 1)


def test_failures_that_are_mended_are_gone(dataset: Dataset, do_import: Import) -> None:
    do_import(raw("a"), raw("b", model="gpt-4o"))
    assert [failure.reason for failure in failures_of(dataset)] == ["model_mismatch"]
    assert sums(do_import(raw("a"), raw("b"))) == (2, 1, 0, 0, 1)
    assert failures_of(dataset) == []


# --- what was decided ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "option", "source", "decided_by"),
    [
        (raw("a"), None, "sglang", "default"),
        (raw("a"), "vllm", "vllm", "option"),
        (raw("a", provider="Chutes"), "vllm", "openrouter", "provider"),
        (raw("a", provider=5), None, "openrouter", "provider"),
        (batch("a"), None, "openai", "default"),
        (batch("a"), "sglang", "sglang", "option"),
        (batch("a", provider="Chutes"), "sglang", "openrouter", "provider"),
        (recorded("a"), None, "openai", "default"),
        (recorded("a", head={"provider": "Chutes"}), None, "openrouter", "provider"),
        (recorded("a", url="https://openrouter.ai/api/v1"), "sglang", "openrouter", "url"),
        (recorded("a", url="https://api.avian.io/v1"), None, "avian", "url"),
        (recorded("a", url="http://node-7:30000/v1"), "sglang", "sglang", "option"),
        (recorded("a", url="http://[::1]:30000/v1"), None, "openai", "default"),
        (recorded("a", url="https://api.avian.io/v1", head={"provider": "P"}), None, "avian", "url"),
        (recorded("a", url=["x"]), None, "openai", "default"),
    ],
)
def test_sources(
    dataset: Dataset, do_import: Import, line: Any, option: str | None, source: str, decided_by: str
) -> None:
    counts = do_import(line, source=option)
    assert [row["source"] for row in rows_of(dataset)] == [source]
    assert counts.as_json()["sources"] == {source: {decided_by: 1}}


def test_a_source_that_the_suite_would_refuse_is_said_with_what_sets_it(dataset: Dataset, do_import: Import) -> None:
    said = "\n".join(summary_of(dataset, do_import(batch("a"), raw("b"))))
    assert "source openai: 1 row (nothing in the line says; --source NAME sets it)" in said
    assert "refuse 1 openai" in said
    assert "--source NAME --replace" in said
    counts = do_import(batch("a"), raw("b"), source="sglang", replace=True)
    assert sums(counts) == (2, 0, 1, 0, 1)
    assert [row["source"] for row in rows_of(dataset)] == ["sglang", "sglang"]
    assert "refuse" not in "\n".join(summary_of(dataset, counts))


@pytest.mark.parametrize("source", ["OpenRouter", "my source", "", "-x", "a/b", "\x1b[31m"])
def test_a_source_is_a_lower_case_name(dataset: Dataset, do_import: Import, source: str) -> None:
    with pytest.raises(ConfigError, match="--source: expected lower-case"):
        do_import(raw("a"), source=source)
    assert not dataset.folder.exists()


def test_what_was_assumed_is_named(dataset: Dataset, do_import: Import) -> None:
    counts = do_import(raw("a", mode=..., model=...), raw("b", mode=...), raw("c"), mode="instant")
    assert counts.as_json()["assumed"] == {"mode": {"instant": 2}, "model": {MODEL: 1}}
    said = "\n".join(summary_of(dataset, counts))
    assert "mode instant (2)" in said
    assert f"model {MODEL} (1)" in said
    assert [row["notes"] for row in rows_of(dataset)] == [
        ["prompt_unknown", "mode_assumed", "model_assumed"],
        ["prompt_unknown", "mode_assumed"],
        ["prompt_unknown"],
    ]


@pytest.mark.parametrize(
    ("options", "differs"),
    [
        ({"mode": "thinking"}, {"mode": 1}),
        ({"model": "kimi-k2.5"}, {"model": 1}),
        ({"source": "vllm"}, {"source": 1}),
        ({"local_ids_are_engine": True}, {"ids": 1}),
        ({"source": "vllm", "local_ids_are_engine": True}, {"source": 1, "ids": 1}),
        ({}, {}),
    ],
)
def test_other_options_for_the_same_lines_are_said(
    dataset: Dataset, do_import: Import, options: dict[str, Any], differs: dict[str, int]
) -> None:
    line = raw("a", mode=..., model=..., output_ids=[87, 163586])
    do_import(line, mode="instant")
    before = rows_of(dataset)
    counts = do_import(line, **{"mode": "instant", **options})
    assert sums(counts) == (1, 0, 0, 0, 1)
    assert counts.differently == differs
    assert ("--replace" in "\n".join(summary_of(dataset, counts))) == bool(differs)
    assert rows_of(dataset) == before
    counts = do_import(line, **{"mode": "instant", **options}, replace=True)
    assert counts.replaced == bool(differs)
    assert (rows_of(dataset) != before) == bool(differs)
    assert len(rows_of(dataset)) == 1


# --- prompts ---------------------------------------------------------------------------------------


def test_rows_without_their_prompt_get_it_when_it_is_there(dataset: Dataset, do_import: Import) -> None:
    lines = [raw("a"), raw("b"), recorded("r", url="https://openrouter.ai/x", head={"provider": "P"})]
    counts = do_import(*lines)
    assert (counts.prompt_unknown, counts.without_prompt_ids) == (2, {"prompt_unknown": 2})
    said = "\n".join(summary_of(dataset, counts))
    assert "the prompt of 2 rows is not known, and merge writes no row without prompt ids" in said
    assert str(dataset.prompts) in said
    # Still unknown the second time, and said again.
    assert do_import(*lines).prompt_unknown == 2
    ask(dataset, user("b"))
    before = {row["sample_id"]: row for row in rows_of(dataset)}
    counts = do_import(*lines)
    assert sums(counts) == (3, 0, 1, 0, 2)
    assert counts.prompt_unknown == 1
    after = {row["sample_id"]: row for row in rows_of(dataset)}
    assert after["a"] == before["a"]
    assert after["r"] == before["r"]
    assert after["b"]["prompt_ids"]
    assert after["b"]["row_key"] == before["b"]["row_key"]
    assert "1 replaced" in "\n".join(summary_of(dataset, counts))
    assert sums(do_import(*lines)) == (3, 0, 0, 0, 3)
    assert unlisted_shards(dataset, read_live(dataset)) == []


def test_a_joined_prompt_brings_its_options_and_its_tool_ids(dataset: Dataset, do_import: Import) -> None:
    call = {"id": "call_9", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_9", "content": "found"},
    ]
    ask(dataset, user("a", mode="thinking", max_tokens=2, messages=messages))
    counts = do_import(raw("a", mode=..., reasoning=" so", usage={"completion_tokens": 2}), mode="instant")
    (row,) = rows_of(dataset)
    sent = json.loads(row["messages"])
    assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"] == "functions.find:0"
    assert json.loads(row["payload"])["tool_ids"] == {"call_9": "functions.find:0"}
    assert (row["mode"], json.loads(row["payload"])["max_tokens"]) == ("thinking", 2)
    # Said to be finished at the cap that the prompt states.
    assert (row["rebuild_status"], "stop_at_max_tokens" in row["notes"]) == ("ambiguous", True)
    assert "mode" not in counts.assumed


def test_what_the_line_says_stands_before_its_prompt(dataset: Dataset, do_import: Import) -> None:
    ask(dataset, user("a", mode="thinking"))
    do_import(raw("a", mode="instant"), raw("a", turn=1))
    assert [(row["mode"], row["messages"] is None) for row in rows_of(dataset)] == [
        ("instant", False),
        ("instant", True),
    ]


def test_a_known_prompt_is_never_given_up(dataset: Dataset, do_import: Import) -> None:
    ask(dataset, user("a"))
    do_import(raw("a"))
    dataset.prompts.unlink()
    counts = do_import(raw("a"), source="vllm", replace=True)
    assert sums(counts) == (1, 0, 0, 0, 1)
    assert counts.differently == {"source": 1}
    assert rows_of(dataset)[0]["prompt_ids"]


def test_a_generated_row_is_never_replaced(
    dataset: Dataset, do_import: Import, kimi: Contract, vocabulary: Vocabulary
) -> None:
    do_import(raw("a"))
    (row,) = rows_of(dataset)
    other = Workspace(dataset.folder.parent.parent).dataset_named("B4")
    seal_rows(other, [row | {"origin": "generate"}], contract=kimi.name)
    ask(other, user("a"))
    assert sums(do_import(raw("a"), into=other, source="vllm", replace=True)) == (1, 0, 0, 0, 1)
    assert rows_of(other)[0]["origin"] == "generate"


# --- secrets ---------------------------------------------------------------------------------------

KEY = "sk-or-v1-0123456789abcdef0123"


def test_an_authorization_header_reaches_neither_rows_nor_failures(dataset: Dataset, do_import: Import) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    said = 'curl -H "Authorization: Bearer $KEY"'
    echoed = {"error": {"code": 401, "message": f"wrong key {KEY}"}}
    lines: list[Any] = [
        raw("a", said, headers=headers),
        recorded("b", {"headers": headers, "extra_headers": headers}, headers=headers),
        {"custom_id": "c", "response": {"status_code": "200", "headers": headers, "body": {}}, "request": headers},
        {"request": {"headers": headers}, "body": 5, "headers": headers},
        {"what": 1, "headers": headers},
        raw("d", model="gpt-4o", headers=headers),
        {"custom_id": "e", "response": {"status_code": 401, "body": echoed}},
        {"custom_id": "f", "response": None, "error": {"message": KEY}},
        [headers],
    ]
    counts = do_import(*lines)
    assert sums(counts) == (9, 2, 0, 7, 0)
    assert [row["content"] for row in rows_of(dataset)] == [said, " yes"]
    for path in dataset.folder.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path
    assert KEY not in json.dumps(list(rows_of(dataset)))
    assert sums(do_import(*lines)) == (9, 0, 0, 7, 2)


# --- files -----------------------------------------------------------------------------------------


def test_no_line_at_all(dataset: Dataset, do_import: Import) -> None:
    with pytest.raises(StoreError, match=r"lines\.jsonl: expected JSON lines, found none"):
        do_import()
    assert read_live(dataset).shards == ()


def test_files_that_hold_no_json_lines(
    dataset: Dataset, kimi: Contract, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    (tmp_path / "lines.jsonl.gz").write_bytes(gzip.compress(json.dumps(raw("a")).encode()))
    good = write(tmp_path / "good.jsonl", raw("a"))
    wrong = {
        tmp_path: "directory",
        tmp_path / "pipe": "found a",
        tmp_path / "link": "found a",
        Path("/dev/zero"): "found a",
        tmp_path / "none": "No such file",
        tmp_path / "lines.jsonl.gz": "found a gzip file; unpack it first",
    }
    for path, says in wrong.items():
        with pytest.raises(ConfigError, match=says) as error:
            import_files(dataset, [good, path], kimi, vocabulary, ImportOptions())
        assert str(path) in str(error.value)
        with pytest.raises(ConfigError, match=says):
            count_lines([good, path])
    assert not dataset.folder.exists()


def test_a_name_that_is_no_utf8(dataset: Dataset, kimi: Contract, vocabulary: Vocabulary, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/lines-\xff.jsonl"))
    write(path, [1], raw("a"), raw("a", "y"))
    import_files(dataset, [path], kimi, vocabulary, ImportOptions())
    assert {failure.where for failure in failures_of(dataset)} == {
        "lines-\ufffd.jsonl: line 1",
        "lines-\ufffd.jsonl: line 3",
    }


def test_a_file_that_is_named_twice_fails_once(
    dataset: Dataset, kimi: Contract, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    path = write(tmp_path / "lines.jsonl", [1], raw("a"))
    counts = import_files(dataset, [path, path], kimi, vocabulary, ImportOptions())
    assert sums(counts) == (4, 1, 0, 2, 1)
    assert len(failures_of(dataset)) == 1


def test_progress_counts_the_lines(dataset: Dataset, kimi: Contract, vocabulary: Vocabulary, tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text(f"\n{json.dumps(raw('a'))}\n\n[1]\n", encoding="utf-8")
    done: list[int] = []
    import_files(dataset, [path], kimi, vocabulary, ImportOptions(), done.append)
    assert sum(done) == count_lines([path]) == 2


# --- killed ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_kill_at_any_point_is_mended_by_importing_again(
    dataset: Dataset, kimi: Contract, vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_writer, "ROWS_PER_SHARD", 2)
    monkeypatch.setattr(shard_writer, "ROWS_PER_BATCH", 1)
    first = write(tmp_path / "first.jsonl", *(raw(name) for name in "abc"), raw("c", "again"))
    second = write(tmp_path / "second.jsonl", *(raw(name) for name in "defg"), raw("a", "other"), raw("d", "more"), [1])
    import_files(dataset, [first], kimi, vocabulary, ImportOptions())
    ask(dataset, user("a"), user("c"), user("e"))
    start = shutil.copytree(dataset.folder, tmp_path / "start")

    def run(into: Dataset = dataset) -> ImportCounts:
        return import_files(into, [first, second], kimi, vocabulary, ImportOptions())

    def reset() -> None:
        shutil.rmtree(dataset.folder)
        shutil.copytree(start, dataset.folder)

    RowBuilder(kimi, vocabulary)
    steps = count_steps(run)
    reset()
    assert sums(run()) == (11, 4, 2, 4, 1)
    rows, failures = rows_of(dataset), failures_of(dataset)
    assert [(row["sample_id"], row["prompt_ids"] is not None) for row in rows] == [
        ("a", True), ("b", False), ("c", True), ("d", False), ("e", True), ("f", False), ("g", False),
    ]  # fmt: skip
    assert steps >= 7
    for step in range(2 * steps):
        reset()
        die_at(step, run)
        live = read_live(dataset)
        assert live.rows in (3, 7)
        counts = run()
        assert counts.lines == counts.rows + counts.replaced + counts.failures + counts.already_there
        assert rows_of(dataset) == rows, step
        assert [(f.reason, f.where, f.body) for f in failures_of(dataset)] == [
            (f.reason, f.where, f.body) for f in failures
        ], step
        assert list(dataset.folder.rglob(".*.tmp")) == []
        assert unlisted_shards(dataset, read_live(dataset)) == []
