"""The commands as a user types them: the way through, and what each kind of bad input says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from toolkit.audit.suite import shipped_suite
from toolkit.contract import SHIPPED
from toolkit.store.files import sha256_of
from toolkit.vocabulary import Vocabulary

from .workspace import Command, batch_line, ids_of, write_lines, write_prompts

ROWS = 1_000


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Path:
    """A workspace with 1,000 good rows in datasets/B3_numbers, imported but not audited."""
    from toolkit.importing import ImportOptions, import_files
    from toolkit.store.workspace import Workspace

    root = tmp_path_factory.mktemp("imported")
    write_prompts(root, "B3_numbers", ROWS)
    file = write_lines(root / "batch.jsonl", [batch_line(vocabulary, i) for i in range(ROWS)])
    dataset = Workspace(root).dataset_named("B3_numbers")
    counts = import_files(dataset, [file], vocabulary.contract, vocabulary, ImportOptions())
    assert counts.rows == ROWS
    return root


@pytest.fixture
def root(imported: Path, tmp_path: Path) -> Path:
    """A copy that a test may break."""
    return Path(shutil.copytree(imported, tmp_path / "w"))


def dataset(root: Path) -> Path:
    return root / "datasets" / "B3_numbers"


def verdict_of(root: Path) -> dict[str, Any]:
    verdict: dict[str, Any] = json.loads((root / "reports/B3_numbers/verdict.json").read_text(encoding="utf-8"))
    return verdict


def import_bad_row(root: Path, vocabulary: Vocabulary, run: Command) -> None:
    """One more row, whose count says that its text is not what the model said."""
    line = batch_line(vocabulary, 0, usage={"completion_tokens": 3, "prompt_tokens": None})
    line["custom_id"] = "bad"
    assert run("import", "B3_numbers", str(write_lines(root / "bad.jsonl", [line])), root=root).code == 0


def test_from_import_to_a_train_set(root: Path, run: Command, vocabulary: Vocabulary) -> None:
    audited = run("audit", "B3", root=root)
    assert audited.code == 0, audited.out + audited.err
    assert "1,000 rows: 1,000 openrouter" in audited.out
    assert "\x1b" not in audited.out
    for name in ("index.html", "junit.xml", "summary.md", "verdict.json", "quarantine.parquet"):
        assert (root / "reports/B3_numbers" / name).stat().st_size > 100
    merged = run("merge", "B3", "-o", str(root / "train"), root=root)
    assert merged.code == 0, merged.err
    rows = pq.read_table(root / "train/shards").to_pylist()
    assert len(rows) == ROWS
    row = next(r for r in rows if r["id"] == "B3_numbers/q7/0/0")
    completion = ids_of(vocabulary, " They ask for number 7.", " The number is 7, as everybody knows.")
    assert row["input_ids"][row["prompt_len"] :] == completion
    assert vocabulary.decode_bytes(row["input_ids"][: row["prompt_len"]]).decode() == (
        "<|im_user|>user<|im_middle|>Number 7?<|im_end|><|im_assistant|>assistant<|im_middle|><think>"
    )
    assert row["loss_mask"] == [0] * row["prompt_len"] + [1] * len(completion)


def test_a_second_audit_measures_nothing(root: Path, run: Command) -> None:
    assert run("audit", "B3", root=root).code == 0
    assert verdict_of(root)["measured_shards"] == 1
    assert run("audit", "B3", root=root).code == 0
    assert verdict_of(root)["measured_shards"] == 0


def test_json_for_machines(root: Path, run: Command) -> None:
    audited = run("audit", "B3", "--format", "json", root=root)
    assert json.loads(audited.out)["passed"] is True
    missing = run("audit", "B9", "--format", "json", root=root)
    assert missing.code == 2
    assert json.loads(missing.out)["exit_code"] == 2


def test_one_bad_row_in_a_thousand_is_left_out(root: Path, run: Command, vocabulary: Vocabulary) -> None:
    import_bad_row(root, vocabulary, run)
    audited = run("audit", "B3", root=root)
    assert audited.code == 0, audited.out
    quarantined = pq.read_table(root / "reports/B3_numbers/quarantine.parquet").to_pylist()
    assert [row["sample_id"] for row in quarantined] == ["bad"]
    assert "count_explained" in quarantined[0]["reasons"]
    assert run("merge", "B3", "-o", str(root / "train"), root=root).code == 0
    assert pq.read_table(root / "train/shards").num_rows == ROWS
    manifest = json.loads((root / "train/manifest.json").read_text(encoding="utf-8"))
    assert {reason: n for reason, n in manifest["totals"]["dropped"].items() if n} == {"quarantined": 1}


def suite_with_mostly(root: Path, mostly: float) -> Path:
    """The shipped suite in the workspace, with another `mostly` for counts."""
    suite = json.loads(shipped_suite("kimi-k2.5").read_text(encoding="utf-8"))
    for expectation in suite["expectations"]:
        if expectation["meta"]["id"] in ("count_explained", "evidence_given"):
            expectation["kwargs"]["mostly"] = mostly
    path = root / "expectations" / "kimi-k2.5.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(suite), encoding="utf-8")
    return path


@pytest.mark.parametrize(("mostly", "code"), [(0.99, 0), (1.0, 1), (1, 1)])
def test_mostly_decides(root: Path, run: Command, vocabulary: Vocabulary, mostly: float, code: int) -> None:
    import_bad_row(root, vocabulary, run)
    suite_with_mostly(root, mostly)
    audited = run("audit", "B3", root=root)
    assert audited.code == code
    assert run("merge", "B3", "-o", str(root / "train"), root=root).code == code
    assert (root / "train").exists() == (code == 0)


def test_a_whole_number_for_mostly_and_no_share_of_its_own(root: Path, run: Command) -> None:
    path = suite_with_mostly(root, 1)
    suite = json.loads(path.read_text(encoding="utf-8"))
    del suite["meta"]
    path.write_text(json.dumps(suite), encoding="utf-8")
    assert run("audit", "B3", root=root).code == 0
    verdict = root / "reports/B3_numbers/verdict.json"
    whole = verdict.read_text(encoding="utf-8")
    verdict.write_text(whole.replace('"max_quarantined_share": 0.05', '"max_quarantined_share": 1.0'), encoding="utf-8")
    refused = run("merge", "B3", "-o", str(root / "train"), root=root)
    assert refused.code == 1
    assert "the verdict allows 100.00% of rows in quarantine, its file 5.00%" in refused.err
    verdict.write_text(whole, encoding="utf-8")
    assert run("merge", "B3", "-o", str(root / "train"), root=root).code == 0


@pytest.mark.parametrize("body", ["\ud800", '{"choices": "\ud800"}'])
def test_a_lone_surrogate_in_a_body_is_a_failure_of_its_line(root: Path, run: Command, body: str) -> None:
    lines = [
        {"custom_id": "a", "response": {"status_code": 200, "body": body}},
        {"request": {"model": "kimi-k2.5"}, "status": 200, "body": body},
    ]
    outcome = run("import", "B3_numbers", str(write_lines(root / "odd.jsonl", lines)), "--format", "json", root=root)
    assert outcome.code == 3
    assert json.loads(outcome.out)["by_reason"] == {"not_utf8": 2}


def test_import_takes_whole_names_only(root: Path, run: Command, vocabulary: Vocabulary) -> None:
    before = (dataset(root) / "shards.json").read_bytes()
    file = write_lines(root / "one.jsonl", [batch_line(vocabulary, 1)])
    assert run("import", "B3", str(file), root=root).code == 0
    assert (root / "datasets/B3/shards.json").exists()
    assert (dataset(root) / "shards.json").read_bytes() == before


def test_an_unfinished_dataset_is_audited_and_marked(root: Path, run: Command) -> None:
    write_prompts(root, "B3_numbers", ROWS + 5)
    audited = run("audit", "B3", root=root)
    assert audited.code == 3
    assert "INCOMPLETE" in audited.out
    verdict = verdict_of(root)
    assert (verdict["passed"], verdict["complete"]) == (True, False)
    assert verdict["accounting"]["unanswered"] == 5
    merged = run("merge", "B3", "-o", str(root / "train"), root=root)
    assert merged.code == 1
    assert "unfinished" in merged.err


# --- bad input -----------------------------------------------------------------------------------


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def test_a_missing_dataset(root: Path, run: Command) -> None:
    outcome = run("audit", "B7", root=root)
    assert outcome.code == 2
    assert "no such folder" in outcome.err
    assert "B3_numbers" in outcome.err


def test_a_dataset_without_shards(root: Path, run: Command) -> None:
    (root / "datasets/B4").mkdir()
    outcome = run("audit", "B4", root=root)
    assert outcome.code == 3
    assert "no shards" in outcome.err


def test_a_shard_cut_in_half(root: Path, run: Command) -> None:
    shard = dataset(root) / "shards/part-00000.parquet"
    shard.write_bytes(shard.read_bytes()[: shard.stat().st_size // 2])
    outcome = run("audit", "B3", root=root)
    assert outcome.code == 3
    assert "part-00000.parquet" in outcome.out
    assert "cut short" in outcome.out
    assert verdict_of(root)["passed"] is False


def test_a_flipped_byte_of_a_shard(root: Path, run: Command) -> None:
    flip_a_byte(dataset(root) / "shards/part-00000.parquet")
    outcome = run("audit", "B3", root=root)
    assert outcome.code == 3
    assert verdict_of(root)["complete"] is False


def test_a_shard_with_other_column_types(root: Path, run: Command) -> None:
    shard = dataset(root) / "shards/part-00000.parquet"
    table = pq.read_table(shard)
    index = table.schema.get_field_index("output_ids")
    pq.write_table(table.set_column(index, "output_ids", table["output_ids"].cast(pa.list_(pa.int64()))), shard)
    live = dataset(root) / "shards.json"
    listed = json.loads(live.read_text(encoding="utf-8"))
    listed["shards"][0]["sha256"] = sha256_of(shard)
    live.write_text(json.dumps(listed), encoding="utf-8")
    outcome = run("audit", "B3", root=root)
    assert outcome.code == 3
    assert "output_ids: expected list" in " ".join(outcome.out.split())


@pytest.mark.parametrize("tail", [b'{"row_key": "abc", "sam', '{"row_key": "日'.encode()[:-1]])
def test_a_journal_with_a_torn_last_line(root: Path, run: Command, tail: bytes) -> None:
    journal = dataset(root) / "journal/20260101T000000Z-1.jsonl"
    journal.parent.mkdir(exist_ok=True)
    journal.write_bytes(tail)
    assert run("audit", "B3", root=root).code == 0
    assert run("merge", "B3", "-o", str(root / "train"), root=root).code == 0


def test_a_suite_with_a_misspelt_type(root: Path, run: Command) -> None:
    path = suite_with_mostly(root, 0.99)
    path.write_text(path.read_text(encoding="utf-8").replace("expect_column_values_to_be_null", "expect_colum_null"))
    outcome = run("audit", "B3", root=root)
    assert outcome.code == 2
    assert "kimi-k2.5.json: expectations[" in outcome.err
    assert "expect_colum_null" in outcome.err


def test_a_prompts_file_with_one_bad_line(root: Path, run: Command) -> None:
    prompts = dataset(root) / "prompts.jsonl"
    lines = prompts.read_bytes().splitlines()
    lines[41] = b'{"id": "q41", "mesages": []}'
    prompts.write_bytes(b"\n".join(lines))
    outcome = run("generate", "B3", "--url", "http://127.0.0.1:9/api/v1", root=root)
    assert outcome.code == 2
    assert "line 42" in outcome.err
    assert "mesages" in outcome.err


@pytest.mark.parametrize(("wrong", "says"), [(163608, "163608"), (163604, "163604")])
def test_a_contract_whose_end_of_thinking_is_another_id(root: Path, run: Command, wrong: int, says: str) -> None:
    text = (SHIPPED / "kimi-k2.5.toml").read_text(encoding="utf-8")
    contract = root / "contracts/kimi-k2.5.toml"
    contract.parent.mkdir()
    contract.write_text(text.replace('"</think>" = 163607', f'"</think>" = {wrong}'), encoding="utf-8")
    for words in (("audit", "B3"), ("contract", "check", "kimi-k2.5")):
        outcome = run(*words, root=root)
        assert outcome.code == 2, words
        assert says in outcome.out + outcome.err


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"id": "gen-1", "choices": None, "usage": None}, "no_choices"),
        ({"id": "gen-1", "usage": {"completion_tokens": 0}}, "no_choices"),
        ({"id": "gen-1", "choices": []}, "no_choices"),
        ("<!DOCTYPE html><title>524: A timeout occurred</title>", "not_json"),
        ({"choices": None, "error": {"code": 429, "message": "Provider returned error"}}, "http_429"),
    ],
)
def test_replies_that_are_no_answers_are_kept_as_failures(root: Path, run: Command, body: Any, reason: str) -> None:
    before = (dataset(root) / "shards.json").read_bytes()
    line = {"custom_id": "odd", "response": {"status_code": 200, "body": body}}
    outcome = run("import", "B3_numbers", str(write_lines(root / "odd.jsonl", [line])), "--format", "json", root=root)
    assert outcome.code == 3
    assert json.loads(outcome.out)["by_reason"] == {reason: 1}
    assert (dataset(root) / "shards.json").read_bytes() == before
    (file,) = (dataset(root) / "failures").glob("*.jsonl")
    assert json.loads(file.read_text(encoding="utf-8"))["sample_id"] == "odd"


def test_a_folder_that_cannot_be_written(root: Path, run: Command) -> None:
    (root / "reports").write_text("a file where a folder should be", encoding="utf-8")
    outcome = run("audit", "B3", root=root)
    assert outcome.code == 3
    assert "reports" in outcome.err
    assert "cannot be written" in outcome.err


def test_importing_into_a_folder_that_cannot_be_written(root: Path, run: Command, vocabulary: Vocabulary) -> None:
    before = (dataset(root) / "shards.json").read_bytes()
    shutil.move(dataset(root) / "shards", root / "elsewhere")
    (dataset(root) / "shards").write_text("in the way", encoding="utf-8")
    line = batch_line(vocabulary, 1)
    line["custom_id"] = "new"
    outcome = run("import", "B3_numbers", str(write_lines(root / "new.jsonl", [line])), root=root)
    assert outcome.code == 3
    assert (dataset(root) / "shards.json").read_bytes() == before


def test_an_ambiguous_beginning_of_a_name(root: Path, run: Command) -> None:
    (root / "datasets/B3_other").mkdir()
    outcome = run("audit", "B3", root=root)
    assert outcome.code == 2
    assert "B3_numbers, B3_other" in outcome.err


def test_a_misspelt_key_of_the_settings(root: Path, run: Command) -> None:
    (root / "tokenproof.toml").write_text("[datasets.B3_numbers]\nmax_token = 5\n", encoding="utf-8")
    outcome = run("audit", "B3", root=root)
    assert outcome.code == 2
    assert "max_token" in outcome.err
