"""Rows taken out and put back: which ones, and that a kill at any point leaves them either live or discarded."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from toolkit.columns import FACTS_SCHEMA
from toolkit.errors import ConfigError, StoreError
from toolkit.records import Entry, LiveShard, Origin
from toolkit.store.discards import discard_held, discard_rows, read_discards, settle_discards, undo_discard
from toolkit.store.files import sole_writer
from toolkit.store.journal import LineWriter
from toolkit.store.listing import seal_rows
from toolkit.store.row_filter import parse_where, select_rows
from toolkit.store.shards import read_live, read_shard, unlisted_shards
from toolkit.store.workspace import Dataset, Workspace

from .rows import add_dataset, row


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.fixture
def dataset(workspace: Workspace) -> Dataset:
    """Three shards: a0 a1 a2, b0 b1, c0."""
    shards = [
        [row(f"{name}{i}", payload=f'{{"{name}":{i}}}') for i in range(n)] for name, n in (("a", 3), ("b", 2), ("c", 1))
    ]
    return add_dataset(workspace, "B4", *shards)


def live_rows(dataset: Dataset) -> list[dict]:
    return [row for shard in read_live(dataset).shards for row in read_shard(dataset, shard).to_pylist()]


def names(dataset: Dataset) -> list[str]:
    return sorted(row["sample_id"] for row in live_rows(dataset))


def masks(dataset: Dataset, *sample_ids: str) -> dict[str, np.ndarray]:
    chosen = {}
    for shard in read_live(dataset).shards:
        ids = read_shard(dataset, shard, ["sample_id"])["sample_id"].to_pylist()
        chosen[shard.sha256] = np.array([name in sample_ids for name in ids])
    return chosen


ALL = ["a0", "a1", "a2", "b0", "b1", "c0"]


# --- out and back ---------------------------------------------------------------------------------------


def test_rows_go_out_at_once_and_other_shards_keep_their_files(dataset: Dataset):
    before = read_live(dataset).shards
    inode = (dataset.folder / before[1].path).stat().st_ino
    record = discard_rows(dataset, masks(dataset, "a1", "c0"), reason="tainted", where="x")
    assert names(dataset) == ["a0", "a2", "b0", "b1"]
    after = read_live(dataset)
    assert before[1] in after.shards
    assert (dataset.folder / before[1].path).stat().st_ino == inode
    assert after.contract == "kimi-k2.5"
    assert unlisted_shards(dataset, after) == []
    assert not (dataset.folder / "set_aside").exists()
    assert read_discards(dataset) == (record,)
    assert (record.id, record.rows, record.reason, record.where, record.by) == ("d1", 2, "tainted", "x", "user")
    assert record.state == "discarded"
    assert datetime.now(UTC).timestamp() - datetime.fromisoformat(record.at).timestamp() < 60
    kept = [row for part in record.parts for row in read_shard(dataset, part).to_pylist()]
    assert [(row["sample_id"], row["payload"]) for row in kept] == [("a1", '{"a":1}'), ("c0", '{"c":0}')]


def test_undo_puts_every_value_back(dataset: Dataset):
    before = {row["sample_id"]: row for row in live_rows(dataset)}
    discard_rows(dataset, masks(dataset, "a1", "c0"), reason="tainted")
    record = undo_discard(dataset, "d1")
    assert (record.state, record.rows) == ("restored", 2)
    assert {row["sample_id"]: row for row in live_rows(dataset)} == before
    assert len(live_rows(dataset)) == 6
    assert not (dataset.folder / "discarded" / "d1").exists()
    with pytest.raises(ConfigError, match="d1: its rows were put back before"):
        undo_discard(dataset, "d1")
    assert discard_rows(dataset, masks(dataset, "a1"), reason="again").id == "d2"


def test_all_rows_can_go_and_come_back(dataset: Dataset):
    discard_rows(dataset, masks(dataset, *ALL), reason="all")
    assert (names(dataset), read_live(dataset).shards, read_live(dataset).contract) == ([], (), "kimi-k2.5")
    undo_discard(dataset, "d1")
    assert names(dataset) == ALL


def test_undo_is_refused_once_an_identity_has_a_new_row(dataset: Dataset):
    discard_rows(dataset, masks(dataset, "a1", "c0"), reason="tainted")
    seal_rows(dataset, [row("a1", payload="{}")], contract="kimi-k2.5")
    with pytest.raises(StoreError, match=r"d1: 'a1' has been answered anew"):
        undo_discard(dataset, "d1")
    assert names(dataset) == ["a0", "a1", "a2", "b0", "b1"]
    discard_rows(dataset, masks(dataset, "a1"), reason="after all")
    undo_discard(dataset, "d1")
    assert names(dataset) == ALL


def test_a_probe_of_the_same_prompt_is_no_new_answer(dataset: Dataset):
    discard_rows(dataset, masks(dataset, "a1"), reason="tainted")
    seal_rows(dataset, [row("a1", probe=True)], contract="kimi-k2.5")
    assert undo_discard(dataset, "d1").state == "restored"


def test_undo_is_refused_under_another_contract_and_for_what_is_not_there(dataset: Dataset):
    discard_rows(dataset, masks(dataset, "a1"), reason="tainted")
    with pytest.raises(ConfigError, match="discard 'd7': expected one of d1"):
        undo_discard(dataset, "d7")
    content = dataset.live.read_bytes().replace(b'"kimi-k2.5"', b'"other"')
    dataset.live.write_bytes(content)
    with pytest.raises(StoreError, match=r"expected contract kimi-k2\.5, found other"):
        undo_discard(dataset, "d1")


# --- refusals -------------------------------------------------------------------------------------------


def test_replies_that_are_not_sealed_are_sealed_first(dataset: Dataset):
    entry = Entry(
        row_key="k", sample_id="new", source="sglang", origin=Origin.GENERATE, contract="kimi-k2.5", mode="thinking",
        form="openai", body="{}",
    )  # fmt: skip
    discard_rows(dataset, masks(dataset, "a0"), reason="tainted")
    with LineWriter(dataset.journal / "run.jsonl") as journal:
        journal.write(entry)
    for change in (
        lambda: discard_rows(dataset, masks(dataset, "a1"), reason="x"),
        lambda: undo_discard(dataset, "d1"),
    ):
        with pytest.raises(StoreError, match="dataset B4: 1 replies in the journal are not sealed"):
            change()
    assert names(dataset) == ["a1", "a2", "b0", "b1", "c0"]


def test_a_choice_of_other_shards_an_empty_reason_and_a_second_writer_are_refused(dataset: Dataset):
    chosen = masks(dataset, "a1")
    with pytest.raises(ConfigError, match="reason: expected some words"):
        discard_rows(dataset, chosen, reason=" ")
    with sole_writer(dataset.lock), pytest.raises(StoreError, match="another process is writing"):
        discard_rows(dataset, chosen, reason="x")
    discard_rows(dataset, chosen, reason="x")
    with pytest.raises(StoreError, match="its shards changed since the rows were chosen"):
        discard_rows(dataset, chosen, reason="x")
    with pytest.raises(ValueError, match="no row"):
        discard_rows(dataset, masks(dataset), reason="x")


def test_a_shard_that_cannot_be_read_leaves_all_as_it_was(dataset: Dataset):
    chosen = masks(dataset, "a1", "b0")
    shard = read_live(dataset).shards[1]
    path = dataset.folder / shard.path
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(StoreError, match=r"B4/shards/part-00001.parquet: expected sha256"):
        discard_rows(dataset, chosen, reason="x")
    live = read_live(dataset).shards
    assert [s.rows for s in live] == [3, 2, 1]
    with sole_writer(dataset.lock):
        settle_discards(dataset)
    assert read_discards(dataset) == ()
    assert list((dataset.folder / "discarded").iterdir()) == []


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n",
        b"{}\n",
        b'{"id":"../x","at":"","reason":"","where":null,"by":"user","contract":"","rows":1,"state":"discarded"}\n',
        (
            b'{"id":"d1","at":"","reason":"","where":null,"by":"user","contract":"","rows":1,"state":"discarded",'
            b'"parts":[{"path":"shards/part-00000.parquet","sha256":"","rows":1}]}\n'
        ),
    ],
)
def test_a_file_of_discards_that_was_altered_is_refused(dataset: Dataset, line: bytes):
    (dataset.folder / "discards.jsonl").write_bytes(line)
    with pytest.raises(StoreError, match=r"discards.jsonl: line 1: expected"):
        discard_rows(dataset, masks(dataset, "a1"), reason="x")


# --- killed ---------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is gone: nothing after this happens, not even tidying up."""


def dying_at(monkeypatch: pytest.MonkeyPatch, number: int) -> Callable[[], bool]:
    """Let the file operation with this number, and every later one, not happen; says whether it came to that."""
    count = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count >= number:
                raise Killed
            return real(*args, **options)

        return operation

    monkeypatch.setattr(Path, "replace", counted(Path.replace))
    monkeypatch.setattr(Path, "unlink", counted(Path.unlink))
    monkeypatch.setattr(shutil, "rmtree", counted(shutil.rmtree))
    return lambda: count >= number


@pytest.mark.parametrize("undo", [False, True])
def test_killed_anywhere_rows_are_either_live_or_discarded(workspace: Workspace, undo: bool):
    outcomes = set()
    for number in range(1, 40):
        dataset = add_dataset(
            workspace, f"D{number}", [row(f"a{i}", payload=f'{{"a":{i}}}') for i in range(3)], [row("b0"), row("b1")]
        )
        if undo:
            discard_rows(dataset, masks(dataset, "a1", "b0", "b1"), reason="x")
        chosen = masks(dataset, "a1", "b0", "b1")
        with pytest.MonkeyPatch.context() as patch:
            died = dying_at(patch, number)
            try:
                if undo:
                    undo_discard(dataset, "d1")
                else:
                    discard_rows(dataset, chosen, reason="x")
            except Killed:
                pass
            finished = not died()
        # Whoever only reads finds whole shards, with all rows or without those that go.
        found = names(dataset)
        assert found in (["a0", "a1", "a2", "b0", "b1"], ["a0", "a2"])
        with sole_writer(dataset.lock):
            settle_discards(dataset)
        assert names(dataset) == found
        states = [record.state for record in read_discards(dataset)]
        out = found == ["a0", "a2"]
        assert states == (["discarded"] if out else ["restored"] if undo else [])
        outcomes.add(out)
        # Either way the next step is open, and loses nothing.
        if out:
            undo_discard(dataset, "d1")
        else:
            discard_rows(dataset, masks(dataset, "a1", "b0", "b1"), reason="x")
            undo_discard(dataset, read_discards(dataset)[-1].id)
        assert names(dataset) == ["a0", "a1", "a2", "b0", "b1"]
        assert [row["payload"] for row in live_rows(dataset) if row["sample_id"] == "a1"] == ['{"a":1}']
        if finished:
            break
    assert finished
    assert number > 6
    assert outcomes == {True, False}


def test_a_row_that_was_answered_anew_after_a_kill_is_not_taken_for_the_discarded_one(dataset: Dataset):
    chosen = masks(dataset, "a1")
    with pytest.MonkeyPatch.context() as patch, sole_writer(dataset.lock):
        patch.setattr("toolkit.store.discards._with", dying_with_state("discarded"))
        with pytest.raises(Killed):
            discard_held(dataset, chosen, reason="x")
    assert read_discards(dataset)[0].state == "discarding"
    seal_rows(dataset, [row("a1", payload='{"new":1}')], contract="kimi-k2.5")
    with sole_writer(dataset.lock):
        settle_discards(dataset)
    (record,) = read_discards(dataset)
    assert record.state == "discarded"
    assert read_shard(dataset, record.parts[0])["payload"].to_pylist() == ['{"a":1}']


def dying_with_state(state: str) -> Callable[..., Any]:
    from toolkit.store.discards import _with

    def operation(record: Any, **changes: Any) -> Any:
        if changes["state"] == state:
            raise Killed
        return _with(record, **changes)

    return operation


# --- --where --------------------------------------------------------------------------------------------


@pytest.fixture
def mixed(workspace: Workspace) -> Dataset:
    rows = [
        row("a,b", provider="Chutes", source="openrouter", finish_reason="length", created=1_772_323_199,
            notes=["x", "cut_tail"]),
        row("q", provider="Moonshot AI", source="openrouter", created=1_772_323_200, cost_usd=0.5),
        row("null", provider=None, model=None, created=None, notes=["cut"], completion_tokens=900),
    ]  # fmt: skip
    return add_dataset(workspace, "B5", rows, [row("last", probe=True, streamed=True, sample_index=2)])


def kept_out(shard: LiveShard) -> pa.Table:
    """The first row of each shard is in quarantine."""
    reasons = [["evidence_given", "cut"], *[[]] * (shard.rows - 1)]
    return pa.table({"quarantined": list(map(bool, reasons)), "reason": pa.array(reasons, pa.list_(pa.string()))})


def chosen(dataset: Dataset, text: str, facts: pa.Table | None = None) -> list[str]:
    where = parse_where(text, lambda name: {"ids.txt": ["q", "last", "gone"], "empty": []}[name])
    selection = select_rows(dataset, where, lambda _: facts, kept_out, examples=100)
    assert selection.of == 4
    assert selection.rows == len(selection.examples) == sum(int(mask.sum()) for mask in selection.masks.values())
    return [example["sample_id"] for example in selection.examples]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("provider=Chutes", ["a,b"]),
        ("provider=Moonshot AI", ["q"]),
        (' provider = "Moonshot AI" ', ["q"]),
        ("provider!=Chutes", ["q", "null", "last"]),
        ("provider=null", ["null", "last"]),
        ('provider="null"', []),
        ("provider!=null,finish_reason=stop", ["q"]),
        ("model=null", ["null"]),
        ('sample_id="a,b"', ["a,b"]),
        ("sample_id=null", []),
        ('sample_id="null"', ["null"]),
        ("@ids.txt", ["q", "last"]),
        ("sample_id=@ids.txt,source=openrouter", ["q"]),
        ("created<2026-03-01", ["a,b", "last"]),
        ("created>2026-02-28,created<2026-03-01T00:00:01Z", ["a,b", "q"]),
        ("created<2026-03-01T01:00:00+01:00", ["a,b", "last"]),
        ("created=1772323200", ["q"]),
        ("created=null", ["null"]),
        ("note=cut_tail", ["a,b"]),
        ("note=cut", ["null"]),
        ("note!=cut_tail", ["q", "null", "last"]),
        ("cost_usd>0.4", ["q"]),
        ("completion_tokens>4", ["null"]),
        ("completion_tokens<900", ["a,b", "q", "last"]),
        ("probe=true", ["last"]),
        ("streamed!=true", ["a,b", "q", "null"]),
        ("sample_index=2", ["last"]),
        ("shard=part-00001", ["last"]),
        ("shard!=part-00001.parquet,source=sglang", ["null"]),
        ("shard=part-0", []),
        ("quarantined=true", ["a,b", "last"]),
        ("quarantined=false", ["q", "null"]),
        ("reason=cut,provider=Chutes", ["a,b"]),
        ("reason!=evidence_given", ["q", "null"]),
        ("reason=cu", []),
    ],
)
def test_where_chooses_rows(mixed: Dataset, text: str, expected: list[str]):
    assert chosen(mixed, text) == expected


def test_a_shard_is_named_by_the_beginning_of_its_hash_too(mixed: Dataset):
    assert chosen(mixed, f"shard={read_live(mixed).shards[1].sha256[:8]}") == ["last"]
    assert chosen(mixed, f"shard={read_live(mixed).shards[1].sha256[:7]}") == []


def test_facts_choose_rows_where_they_were_measured(mixed: Dataset):
    with pytest.raises(StoreError, match=r"n_ids: B5/shards/part-00000.parquet is not measured; run the audit first"):
        chosen(mixed, "n_ids>3")

    def facts(shard: LiveShard) -> pa.Table:
        blank = {f.name: pa.nulls(shard.rows, f.type) for f in FACTS_SCHEMA}
        return pa.table(blank | {"n_ids": pa.array([None, 4, 3] if shard.rows == 3 else [5], pa.int32())})

    where = parse_where("n_ids>3,source=sglang", lambda _: [])
    assert [e["sample_id"] for e in select_rows(mixed, where, facts, kept_out).examples] == ["last"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected FIELD=VALUE or @FILE, found nothing"),
        ("provider=a,,source=b", "found nothing in"),
        ("provider", "with one of = != < >, or @FILE, found 'provider'"),
        ("provider=", "provider: expected text, found nothing"),
        ("provder=x", "unknown field 'provder'; did you mean provider?; expected a column"),
        ("evidence=unverified", "reason=EXPECTATION chooses the rows that fail a critical one"),
        ("reason=null", "reason: expected the id of a critical expectation, found null"),
        ("content=x", "unknown field 'content'"),
        ("__class__=x", "unknown field"),
        ("provider<x", "provider: expected = or != before text, found '<'"),
        ("turn=one", "turn: expected a number, found 'one'"),
        ("turn=nan", "turn: expected a number, found 'nan'"),
        ("turn<=1", "turn: expected a number, found '=1'"),
        ("turn<null", "turn: expected a number, found null"),
        ("probe=yes", "probe: expected true or false, found 'yes'"),
        ("created<yesterday", "created: expected a day, a time or seconds since 1970, found 'yesterday'"),
        ("note=null", "note: expected the code of a note, found null"),
        ('provider="open', "expected a closing quote"),
        ('provider=a"b"', "provider: expected text, found"),
        ("@empty", "@empty: expected a sample_id in each line, found an empty file"),
    ],
)
def test_an_expression_that_cannot_be_read_is_refused(mixed: Dataset, text: str, words: str):
    with pytest.raises(ConfigError) as caught:
        chosen(mixed, text)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 300
