"""Rows made anew from stored replies: nobody is asked, nothing that was paid for goes, and counts add up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from toolkit.config import DatasetSettings
from toolkit.contract import Contract, parse_contract
from toolkit.errors import ConfigError, StoreError
from toolkit.generate.plan import plan_of
from toolkit.rebuilding import rebuild_rows
from toolkit.records import Entry, IdsSource, Origin, Prompt, imported_row_key
from toolkit.rows import RowBuilder
from toolkit.store.answered import read_answered
from toolkit.store.discards import discard_rows, read_discards
from toolkit.store.journal import LineWriter, journal_files, read_failures
from toolkit.store.listing import seal_rows
from toolkit.store.prompts import check_prompts
from toolkit.store.shards import read_live, read_shard, unlisted_shards
from toolkit.store.workspace import Dataset, Workspace
from toolkit.vocabulary import Vocabulary

from .conftest import ROOT
from .generate.asks import plan_asks
from .rows import build_rows

KIMI = (ROOT / "toolkit/contracts/kimi-k2.5.toml").read_bytes()


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return Workspace(tmp_path).dataset_named("B3")


@pytest.fixture(scope="module")
def builder(kimi: Contract, vocabulary: Vocabulary) -> RowBuilder:
    return RowBuilder(kimi, vocabulary)


def changed(vocabulary: Vocabulary, *changes: tuple[bytes, bytes]) -> RowBuilder:
    """A builder of the contract with some of its bytes replaced."""
    content = KIMI
    for old, new in changes:
        assert old in content
        content = content.replace(old, new)
    return RowBuilder(parse_contract(content, "own.toml"), vocabulary)


OWN = (b'name = "kimi-k2.5"', b'name = "own"')
OWN_TOOL_IDS = (b'id_form = "functions.{name}:{index}"', b'id_form = "call.{name}:{index}"')
ODD_IS_STOP = (b'stop = ["stop", ', b'stop = ["odd", "stop", ')
NO_INSTANT = (b"[modes.instant]", b"[modes.other]")


def body(content: str = "Hello.", **changes: Any) -> str:
    choice = {"finish_reason": "stop", "message": {"role": "assistant", "content": content, "reasoning": " So."}}
    return json.dumps(
        {"id": "gen-1", "provider": "Chutes", "model": "moonshotai/kimi-k2.5-0127", "choices": [choice | changes]}
    )


def entries(contract: Contract, prompts: Sequence[Prompt], **fields: Any) -> list[Entry]:
    """Answers to prompts, as generate journals them."""
    return [
        Entry(
            row_key=ask.row_key, sample_id=ask.sample_id, source="openrouter", origin=Origin.GENERATE,
            contract=contract.name, mode=ask.mode, model=ask.model, form="openai", messages=ask.messages,
            tools=ask.tools, sampling=dict(ask.sampling), max_tokens=ask.max_tokens, tool_ids=ask.tool_ids,
            latency_s=1.5, **{"body": body(), **fields},
        )
        for ask in plan_asks(prompts, DatasetSettings(), contract)
    ]  # fmt: skip


def prompt(name: str, **fields: Any) -> Prompt:
    return Prompt(**{"id": name, "messages": [{"role": "user", "content": name}], **fields})


def imported(builder: RowBuilder, sample_id: str, **fields: Any) -> Entry:
    key = imported_row_key(dataset="B3", sample_id=sample_id, sample_index=0, turn=0)
    (entry,) = entries(builder.contract, [prompt(sample_id)], **fields)
    return replace(
        entry, row_key=key, origin=Origin.IMPORT, messages=None, latency_s=None, sampling={}, max_tokens=None
    )


def seal(dataset: Dataset, builder: RowBuilder, made: Sequence[Entry]) -> None:
    seal_rows(dataset, build_rows(builder, made, [], where="test"), contract=builder.contract.name)


def rows(dataset: Dataset) -> dict[str, dict]:
    return {
        row["sample_id"]: row for shard in read_live(dataset).shards for row in read_shard(dataset, shard).to_pylist()
    }


# --- what changes and what stays ------------------------------------------------------------------------


def test_under_the_same_contract_all_stays_but_the_origin(dataset: Dataset, builder: RowBuilder):
    ids = {"choices": [{"finish_reason": "stop", "token_ids": [20, 163607, 21, 163586], "message": {"content": "6"}}]}
    engine = entries(builder.contract, [prompt("engine")], ids_are=IdsSource.ENGINE, body=json.dumps(ids))
    seal(dataset, builder, [*entries(builder.contract, [prompt("a"), prompt("b")]), imported(builder, "c")])
    seal(dataset, builder, engine)
    before = rows(dataset)
    seen: list[int] = []
    counts = rebuild_rows(dataset, builder, advance=seen.append)
    assert (counts.rows_before, counts.rows, counts.failures, counts.ids_changed) == (4, 4, 0, 0)
    assert sum(seen) == 4
    assert rows(dataset) == {name: row | {"origin": "rebuild"} for name, row in before.items()}
    assert rows(dataset)["engine"]["ids_source"] == "engine"
    assert rows(dataset)["engine"]["output_ids"] == [20, 163607, 21, 163586]
    # Nothing is left of the old shards: every reply is in the new ones.
    assert unlisted_shards(dataset, read_live(dataset)) == []
    assert not (dataset.folder / "set_aside").exists()
    # And once more: a rebuilt row is as good as the first.
    assert rebuild_rows(dataset, builder).ids_changed == 0


def test_a_changed_rule_changes_ids_without_asking_anybody(
    dataset: Dataset, builder: RowBuilder, vocabulary: Vocabulary
):
    odd, good = prompt("odd"), prompt("good")
    seal(dataset, builder, entries(builder.contract, [odd], body=body(finish_reason="odd")))
    seal(dataset, builder, entries(builder.contract, [good]))
    before = rows(dataset)
    assert before["odd"]["rebuild_status"] == "ambiguous"
    other = changed(vocabulary, ODD_IS_STOP)
    counts = rebuild_rows(dataset, other)
    after = rows(dataset)
    assert (counts.rows, counts.ids_changed, counts.statuses) == (2, 1, {"complete": 2})
    assert after["odd"]["output_ids"] == after["good"]["output_ids"] == before["good"]["output_ids"]
    assert {row["contract_sha256"] for row in after.values()} == {other.contract.sha256} != {builder.contract.sha256}
    assert [row["payload"] for row in after.values()] == [before[name]["payload"] for name in after]


# --- identities under another name ----------------------------------------------------------------------


def history(call_id: str) -> list[dict]:
    call = {"id": call_id, "type": "function", "function": {"name": "add", "arguments": "{}"}}
    return [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": "2"},
    ]


@pytest.mark.parametrize("ids_form", [(), (OWN_TOOL_IDS,)])
def test_after_a_rebuild_under_another_name_a_later_run_finds_the_rows_answered(
    dataset: Dataset, builder: RowBuilder, vocabulary: Vocabulary, ids_form: tuple
):
    lines = [
        {"id": "plain", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 7},
        {"id": "foreign", "messages": history("call_9f3a")},
        {"id": "own form", "messages": history("functions.add:0")},
        {"id": "imported", "messages": [{"role": "user", "content": "x"}]},
        {"id": "open", "messages": [{"role": "user", "content": "y"}]},
    ]
    dataset.folder.mkdir(parents=True)
    dataset.prompts.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    index = check_prompts(dataset.prompts, modes=builder.contract.modes)
    made = entries(builder.contract, [p for p in index if p.id not in ("open", "imported")])
    seal(dataset, builder, [*made, imported(builder, "imported")])
    other = changed(vocabulary, OWN, *ids_form)
    before = rows(dataset)
    rebuild_rows(dataset, other)
    after = rows(dataset)
    assert read_live(dataset).contract == "own"
    assert {row["contract"] for row in after.values()} == {"own"}
    assert after["imported"]["row_key"] == before["imported"]["row_key"]
    assert after["plain"]["row_key"] != before["plain"]["row_key"]
    # What was sent stays as it was sent; only the identity follows the contract.
    assert {name: row["messages"] for name, row in after.items()} == {n: row["messages"] for n, row in before.items()}
    plan = plan_of(index, DatasetSettings(contract="own"), other.contract, read_answered(dataset))
    assert (plan.answered_before, plan.changed, [ask.sample_id for ask in plan]) == (4, 0, ["open"])
    # Under the old contract they are other requests again.
    assert plan_of(index, DatasetSettings(), builder.contract, read_answered(dataset)).changed == 3
    # And back: the keys are those that they were.
    rebuild_rows(dataset, builder)
    assert {name: row["row_key"] for name, row in rows(dataset).items()} == {n: r["row_key"] for n, r in before.items()}


# --- rows that cannot be rebuilt ------------------------------------------------------------------------


def damaged(dataset: Dataset, builder: RowBuilder, **changes: Any) -> None:
    """A good row and one with some columns changed, as another version might have left it."""
    made = list(build_rows(builder, entries(builder.contract, [prompt("good"), prompt("bad")]), [], where="test"))
    seal_rows(dataset, [made[0], made[1] | changes], contract=builder.contract.name)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"payload": "{}"}, "missing required field"),
        ({"payload": "nonsense"}, "Expecting value"),
        ({"payload": '{"form":"fax","body":"","status":200}'}, "of openai, prepared, raw, sglang, found 'fax'"),
        ({"payload": '{"form":"openai","body":7,"status":200}'}, "Expected `str`, got `int` - at `$.body`"),
        ({"payload": '{"form":"openai","body":"","status":200,"ids_are":"guess"}'}, "guess"),
        ({"messages": '["x"]'}, "Expected `object`, got `str`"),
        ({"tools": "{"}, "Expecting property name"),
    ],
)
def test_a_row_whose_entry_cannot_be_read_is_a_failure_that_keeps_it(
    dataset: Dataset, builder: RowBuilder, changes: dict, words: str
):
    damaged(dataset, builder, **changes)
    (old,) = read_live(dataset).shards
    payload = rows(dataset)["bad"]["payload"]
    counts = rebuild_rows(dataset, builder)
    assert (counts.rows_before, counts.rows, counts.failures) == (2, 1, 1)
    assert list(rows(dataset)) == ["good"]
    (failure,) = read_failures(dataset.failures)
    assert (failure.reason, failure.sample_id, failure.final) == ("payload_unreadable", "bad", False)
    assert (failure.where, failure.body) == (f"{old.path}: row 1", payload)
    assert words in failure.detail
    # The old shard is kept: it holds more than the failure does.
    assert [path.name for path in (dataset.folder / "set_aside").iterdir()] == [f"{old.sha256[:16]}-part-00000.parquet"]


def test_a_reply_that_is_none_under_the_contract_is_a_failure_and_its_prompt_is_asked_again(
    dataset: Dataset, builder: RowBuilder, vocabulary: Vocabulary
):
    asked = [prompt("good"), prompt("instant", mode="instant")]
    seal(dataset, builder, entries(builder.contract, asked))
    dataset.prompts.write_text(
        "".join(json.dumps({"id": p.id, "messages": p.messages}) + "\n" for p in asked), encoding="utf-8"
    )
    other = changed(vocabulary, NO_INSTANT)
    counts = rebuild_rows(dataset, other)
    assert (counts.rows, counts.failures, counts.by_reason) == (1, 1, {"mode_unknown": 1})
    index = check_prompts(dataset.prompts, modes=other.contract.modes)
    plan = plan_of(index, DatasetSettings(), other.contract, read_answered(dataset), read_failures(dataset.failures))
    assert [ask.sample_id for ask in plan] == ["instant"]


def test_where_no_row_can_be_rebuilt_nothing_changes(dataset: Dataset, builder: RowBuilder, vocabulary: Vocabulary):
    seal(dataset, builder, entries(builder.contract, [prompt("a"), prompt("b")]))
    before, live = rows(dataset), read_live(dataset)
    models = (b'"moonshotai/kimi-k2.5", "moonshotai/kimi-k2.5-*", ', b'"other", ')
    with pytest.raises(StoreError, match=r"none of 2 rows can be rebuilt under own \(2 model_mismatch\); nothing was"):
        rebuild_rows(dataset, changed(vocabulary, OWN, models))
    assert (rows(dataset), read_live(dataset)) == (before, live)
    assert list(read_failures(dataset.failures)) == []
    assert rebuild_rows(dataset, builder).rows == 2


# --- before and beside ----------------------------------------------------------------------------------


def test_a_dataset_without_rows_is_not_rebuilt(dataset: Dataset, builder: RowBuilder):
    with pytest.raises(StoreError, match="dataset B3: expected rows to rebuild, found none"):
        rebuild_rows(dataset, builder)


def test_the_journal_is_sealed_first_or_the_rebuild_refused(
    dataset: Dataset, builder: RowBuilder, vocabulary: Vocabulary
):
    seal(dataset, builder, entries(builder.contract, [prompt("a")]))
    with LineWriter(dataset.journal / "run.jsonl") as journal:
        journal.write(entries(builder.contract, [prompt("b")])[0])
    with pytest.raises(StoreError, match="1 replies in the journal are not sealed"):
        rebuild_rows(dataset, changed(vocabulary, OWN))
    counts = rebuild_rows(dataset, builder)
    assert (counts.sealed_first, counts.rows, sorted(rows(dataset))) == (1, 2, ["a", "b"])
    assert journal_files(dataset.journal) == []


def test_a_journal_of_another_contract_is_refused_where_there_are_no_rows_yet(
    dataset: Dataset, builder: RowBuilder, vocabulary: Vocabulary
):
    with LineWriter(dataset.journal / "run.jsonl") as journal:
        journal.write(entries(builder.contract, [prompt("b")])[0])
    with pytest.raises(ConfigError, match=r"expected entries of contract own, found kimi-k2\.5"):
        rebuild_rows(dataset, changed(vocabulary, OWN))


def test_killed_before_the_switch_the_old_rows_are_live_and_the_next_rebuild_does_all(
    dataset: Dataset, builder: RowBuilder, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
):
    damaged(dataset, builder, payload="{}")
    before = rows(dataset)

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("toolkit.store.listing.write_live", die)
        with pytest.raises(Killed):
            rebuild_rows(dataset, builder)
    assert rows(dataset) == before
    counts = rebuild_rows(dataset, builder)
    assert (counts.rows, counts.failures) == (1, 1)
    assert [failure.sample_id for failure in read_failures(dataset.failures)] == ["bad"]
    assert unlisted_shards(dataset, read_live(dataset)) == []


def test_discarded_rows_stay_discarded(dataset: Dataset, builder: RowBuilder):
    import numpy as np

    seal(dataset, builder, entries(builder.contract, [prompt("a"), prompt("b")]))
    (shard,) = read_live(dataset).shards
    discard_rows(dataset, {shard.sha256: np.array([True, False])}, reason="x")
    assert rebuild_rows(dataset, builder).rows == 1
    assert list(rows(dataset)) == ["b"]
    assert read_discards(dataset)[0].state == "discarded"
