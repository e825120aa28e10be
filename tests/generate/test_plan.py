from __future__ import annotations

import json
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.rows import add_dataset, row
from toolkit.config import DatasetSettings
from toolkit.contract import Contract
from toolkit.errors import ConfigError, PromptsError, ShardError
from toolkit.generate.plan import Plan, final_failures, plan_of
from toolkit.records import Failure, Prompt, row_key_of
from toolkit.store.answered import read_answered
from toolkit.store.prompts import check_prompts
from toolkit.store.shards import read_live
from toolkit.store.workspace import Dataset, Workspace

from .asks import plan_asks

USER = [{"role": "user", "content": "hi"}]
MODES = ("thinking", "instant")


def write_prompts(dataset: Dataset, names: Sequence[str], **options: Any) -> None:
    dataset.folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"id": name, "messages": USER, **options}) + "\n" for name in names]
    dataset.prompts.write_text("".join(lines), encoding="utf-8")


def plan(dataset: Dataset, contract: Contract, failures: Sequence[Failure] = (), **settings: Any) -> Plan:
    index = check_prompts(dataset.prompts, modes=MODES)
    return plan_of(index, DatasetSettings(**settings), contract, read_answered(dataset), failures)


def counts(plan: Plan) -> tuple[int, int, int, int, int]:
    return plan.asked, plan.answered_before, plan.failed_before, plan.open, plan.changed


def key(contract: Contract, sample_index: int = 0, **changes: Any) -> str:
    fields = {"messages": USER, "tools": None, "mode": "thinking", "sampling": {}, "max_tokens": 8192, "turn": 0}
    return row_key_of(**{"contract": contract.name, "sample_index": sample_index, **fields, **changes})


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


# --- asks -----------------------------------------------------------------------------------------------


def test_every_prompt_is_asked_samples_times_each_with_its_own_identity(kimi: Contract):
    prompts = [Prompt(id="a", messages=USER), Prompt(id="b", messages=USER, mode="instant", max_tokens=5)]
    asks = plan_asks(prompts, DatasetSettings(samples=2, sampling={"top_p": 0.9}, max_tokens=10), kimi)
    assert [(ask.identity, ask.mode, ask.max_tokens) for ask in asks] == [
        (("a", 0, 0), "thinking", 10),
        (("a", 0, 1), "thinking", 10),
        (("b", 0, 0), "instant", 5),
        (("b", 0, 1), "instant", 5),
    ]
    assert len({ask.row_key for ask in asks}) == 4
    assert asks[3].row_key == row_key_of(
        contract="kimi-k2.5", messages=USER, tools=None, mode="instant", sampling={"top_p": 0.9}, max_tokens=5,
        sample_index=1, turn=0,
    )  # fmt: skip
    assert not any(ask.probe for ask in asks)


def test_foreign_tool_ids_are_rewritten_before_the_identity_is_made(kimi: Contract):
    def history(call_id: str) -> list[dict]:
        call = {"id": call_id, "type": "function", "function": {"name": "add", "arguments": "{}"}}
        return [
            *USER,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call_id, "content": "2"},
        ]

    prompts = [Prompt(id="a", messages=history("call_9f3a")), Prompt(id="b", messages=history("functions.add:0"))]
    foreign, own = plan_asks(prompts, DatasetSettings(), kimi)
    assert foreign.messages == own.messages
    assert foreign.row_key == own.row_key
    assert (foreign.tool_ids, own.tool_ids) == ({"call_9f3a": "functions.add:0"}, None)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (DatasetSettings(model="openai/gpt-4o"), "model: expected one of moonshotai/kimi-k2.5.* found 'openai/gpt-4o'"),
        (DatasetSettings(model="moonshotai/kimi-k2.5:nitro"), "nitro"),
        (DatasetSettings(mode="deep"), "unknown mode 'deep'"),
        (DatasetSettings(sampling={"temprature": 1}), "sampling.temprature: unknown"),
    ],
)
def test_a_model_or_mode_of_another_contract_is_refused(kimi: Contract, settings: DatasetSettings, words: str):
    with pytest.raises(ConfigError, match=words):
        plan_asks([Prompt(id="a", messages=USER)], settings, kimi)


# --- what is left ---------------------------------------------------------------------------------------


def test_a_dataset_without_rows_is_asked_whole_in_the_order_of_its_prompts(workspace: Workspace, kimi: Contract):
    dataset = workspace.dataset_named("B3")
    write_prompts(dataset, ["c", "a", "b"])
    planned = plan(dataset, kimi, samples=2)
    assert counts(planned) == (6, 0, 0, 6, 0)
    expected = [(name, 0, index) for name in "cab" for index in (0, 1)]
    # It can be gone through again, and gives the same.
    assert [[ask.identity for ask in planned] for _ in range(2)] == [expected, expected]
    assert next(iter(planned)).row_key == key(kimi)


def test_rows_out_of_order_leave_exactly_the_others(workspace: Workspace, kimi: Contract):
    # Three workers, row 1 slow, killed after 2, 3 and 4 were written: not the first three are answered, but those.
    dataset = add_dataset(
        workspace, "B3", [row("p2", row_key=key(kimi))], [row(n, row_key=key(kimi)) for n in ("p4", "p3")]
    )
    write_prompts(dataset, [f"p{i}" for i in range(1, 7)])
    planned = plan(dataset, kimi)
    assert counts(planned) == (6, 3, 0, 3, 0)
    assert [ask.sample_id for ask in planned] == ["p1", "p5", "p6"]


def test_turns_samples_and_probes_of_a_prompt_are_told_apart(workspace: Workspace, kimi: Contract):
    rows = [row("a", turn=1), row("a", sample_index=1, row_key=key(kimi, 1)), row("b", probe=True, row_key=key(kimi))]
    dataset = add_dataset(workspace, "B3", rows)
    write_prompts(dataset, ["a", "b"])
    planned = plan(dataset, kimi, samples=2)
    assert [ask.identity for ask in planned] == [("a", 0, 0), ("b", 0, 0), ("b", 0, 1)]
    answered = read_answered(dataset)
    assert len(answered) == 3
    assert answered.find("a", 1, 0) is not None
    assert answered.find("a", 0, 0) is None
    assert answered.find("b", 0, 0) is None
    assert answered.find("b", 0, 0, probe=True) is not None
    assert answered.find("b", 0, 0, probe=True).position == 2


def test_imported_rows_answer_whatever_was_asked_and_generated_ones_only_the_same(workspace: Workspace, kimi: Contract):
    first = [row("a", origin="import", latency_s=None), row("same", row_key=key(kimi)), row("other")]
    second = [
        row("rebuilt import", origin="rebuild", latency_s=None),
        row("rebuilt other", origin="rebuild"),
        row("rebuilt same", origin="rebuild", row_key=key(kimi)),
    ]
    dataset = add_dataset(workspace, "B3", first, second)
    names = ["a", "same", "other", "rebuilt import", "rebuilt other", "rebuilt same", "new"]
    write_prompts(dataset, names)
    planned = plan(dataset, kimi)
    assert counts(planned) == (7, 4, 0, 3, 2)
    assert [ask.sample_id for ask in planned] == ["other", "rebuilt other", "new"]
    assert planned.first_changed == "other"
    shards = read_live(dataset).shards
    masks = planned.changed_rows()
    assert {sha256: mask.tolist() for sha256, mask in masks.items()} == {
        shards[0].sha256: [False, False, True],
        shards[1].sha256: [False, True, False],
    }


@pytest.mark.parametrize("settings", [{"sampling": {"temperature": 0.1}}, {"max_tokens": 9}, {"mode": "instant"}])
def test_other_settings_change_every_row_and_more_samples_none(workspace: Workspace, kimi: Contract, settings: dict):
    dataset = add_dataset(workspace, "B3", [row(name, row_key=key(kimi)) for name in "ab"])
    write_prompts(dataset, ["a", "b"])
    assert counts(plan(dataset, kimi)) == (2, 2, 0, 0, 0)
    assert counts(plan(dataset, kimi, samples=3)) == (6, 2, 0, 4, 0)
    assert counts(plan(dataset, kimi, **settings)) == (2, 0, 0, 2, 2)


def test_a_prompt_whose_text_was_changed_is_asked_anew(workspace: Workspace, kimi: Contract):
    dataset = add_dataset(workspace, "B3", [row(name, row_key=key(kimi)) for name in "ab"])
    write_prompts(dataset, ["a", "b"])
    content = dataset.prompts.read_text(encoding="utf-8")
    dataset.prompts.write_text(content[::-1].replace("ih", "oh", 1)[::-1], encoding="utf-8")
    planned = plan(dataset, kimi)
    assert counts(planned) == (2, 1, 0, 1, 1)
    (ask,) = planned
    assert (ask.sample_id, ask.messages) == ("b", [{"role": "user", "content": "ho"}])


def test_only_final_failures_of_the_same_request_keep_it_from_being_asked(workspace: Workspace, kimi: Contract):
    def failure(sample_id: str | None, **changes: Any) -> Failure:
        fields = {"reason": "http_400", "detail": "", "final": True, "where": "x", "row_key": key(kimi)}
        return Failure(**fields | {"sample_id": sample_id} | changes)

    dataset = add_dataset(workspace, "B3", [row("done", row_key=key(kimi)), row("other")])
    write_prompts(dataset, ["bad", "later", "done", "keyless", "once", "other"])
    failures = [
        failure("bad"),
        failure("bad", row_key="k"),
        failure("later", final=False),
        failure("done"),
        failure(None),
        failure("keyless", row_key=None),
        failure("once", row_key=key(kimi, max_tokens=1)),
        failure("once", turn=1),
        failure("other"),
    ]
    planned = plan(dataset, kimi, failures)
    # The request of `other` was refused before, and the row that is there answers another one.
    assert counts(planned) == (6, 1, 2, 3, 1)
    assert [ask.sample_id for ask in planned] == ["later", "keyless", "once"]
    assert final_failures(failures) >= {(("bad", 0, 0), "k"), (("once", 1, 0), key(kimi))}


def test_what_is_answered_is_read_from_verified_shards_only(workspace: Workspace, kimi: Contract):
    dataset = add_dataset(workspace, "B3", [row("a", row_key=key(kimi))], [row("b", row_key=key(kimi))])
    write_prompts(dataset, ["a", "b"])
    path = dataset.folder / read_live(dataset).shards[0].path
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ShardError, match=r"B3/shards/part-00000.parquet: expected sha256"):
        plan(dataset, kimi)
    tolerant = read_answered(dataset, tolerant=True)
    assert (len(tolerant), tolerant.find("a", 0, 0)) == (1, None)
    assert tolerant.find("b", 0, 0) is not None
    assert {s: m.tolist() for s, m in tolerant.masks(np.array([0])).items()} == {
        read_live(dataset).shards[1].sha256: [True]
    }


def test_a_prompt_that_was_changed_meanwhile_is_not_asked(workspace: Workspace, kimi: Contract):
    dataset = workspace.dataset_named("B3")
    write_prompts(dataset, ["a", "b"])
    planned = plan(dataset, kimi)
    content = dataset.prompts.read_bytes()
    dataset.prompts.write_bytes(content.replace(b"hi", b"ho", 1))
    with pytest.raises(PromptsError, match="changed after it was checked"):
        next(iter(planned))


def test_a_plan_of_many_prompts_holds_little_and_gives_its_first_ask_at_once(workspace: Workspace, kimi: Contract):
    count = 20_000
    dataset = add_dataset(workspace, "B3", [row(f"p{i}", row_key=key(kimi)) for i in range(0, count, 100)])
    write_prompts(dataset, [f"p{i}" for i in range(count)])
    index = check_prompts(dataset.prompts, modes=MODES)
    tracemalloc.start()
    try:
        planned = plan_of(index, DatasetSettings(), kimi, read_answered(dataset))
        asks = iter(planned)
        assert next(asks).sample_id == "p1"
        assert tracemalloc.get_traced_memory()[0] / count <= 16
    finally:
        tracemalloc.stop()
    assert counts(planned) == (count, 200, 0, count - 200, 0)
