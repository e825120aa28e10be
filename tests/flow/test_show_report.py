"""`tokenproof show` and `tokenproof report`, as a user runs them."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from toolkit.cli import main
from toolkit.columns import QUARANTINE_SCHEMA
from toolkit.contract import read_contract
from toolkit.inspection.inspecting import inspect
from toolkit.report.html import render_html
from toolkit.store.previous import PREVIOUS_NAME
from toolkit.store.verdicts import read_verdict
from toolkit.store.workspace import Workspace
from toolkit.vocabulary import Vocabulary

from .workspace import Command, batch_line, write_lines, write_prompts


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Path:
    """Forty answers by Chutes, of which q3 reports three ids too few; imported and audited once for all tests."""
    root = tmp_path_factory.mktemp("audited")
    write_prompts(root, "B3", 40)
    lines = [batch_line(vocabulary, n) for n in range(40)]
    lines[3]["response"]["body"]["usage"]["completion_tokens"] -= 3
    source = write_lines(root / "batch.jsonl", lines)
    for words in (("import", "B3", str(source), "--source", "openrouter"), ("audit", "B3")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["tokenproof", *words, "--root", str(root)])
            with pytest.raises(SystemExit):
                main()
    return root


@pytest.fixture
def root(audited: Path, tmp_path: Path) -> Path:
    """A copy of that workspace."""
    return shutil.copytree(audited, tmp_path / "workspace")


def page_of(root: Path) -> str:
    return (root / "reports/B3/index.html").read_text(encoding="utf-8")


def data_of(page: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="rows-data">(.*?)</script>', page, re.DOTALL)
    assert match
    found: dict[str, Any] = json.loads(match[1])
    return found


def test_an_audit_shows_its_failing_row_id_by_id(root: Path) -> None:
    page = page_of(root)
    data = data_of(page)
    assert 0 < len(data["r"]) <= 20
    assert any("under “counts every id”" in text for text in data["s"])
    assert "Over the dataset" in page
    assert "<b><bdi>q3</bdi></b>" in page


def test_a_report_is_written_again_from_the_files_alone(root: Path, run: Command) -> None:
    written = page_of(root)
    for name in ("index.html", "junit.xml", "summary.md"):
        (root / "reports/B3" / name).unlink()
    done = run("report", "B3", root=root)
    assert (done.code, done.err) == (0, "")
    assert "index.html" in done.out
    assert page_of(root) == written


def test_a_report_without_shards_and_facts_says_what_it_lacks(root: Path, run: Command) -> None:
    for folder in ("facts", "shards"):
        for path in (root / "datasets/B3" / folder).iterdir():
            path.unlink()
    done = run("report", "B3", "--format", "json", root=root)
    told = json.loads(done.out)
    assert done.code == 0
    assert any(sentence.startswith("facts of 1 of 1 shards") for sentence in told["left_off"])
    assert any("missing" in sentence for sentence in told["left_off"] if sentence.startswith("rows: "))
    assert "may" in page_of(root)


def test_a_report_without_an_audit_is_refused(root: Path, run: Command) -> None:
    shutil.rmtree(root / "reports")
    done = run("report", "B3", root=root)
    assert done.code == 3
    assert "run the audit first" in done.err


def test_the_second_audit_is_compared_with_the_first(root: Path, run: Command) -> None:
    assert not (root / "reports/B3" / PREVIOUS_NAME).exists()
    assert "Since the audit before" not in page_of(root)
    first = (root / "reports/B3/verdict.json").read_bytes()
    run("discard", "B3", "--where", "sample_id=q3", "--reason", "wrong count", root=root)
    run("audit", "B3", root=root)
    assert (root / "reports/B3" / PREVIOUS_NAME).read_bytes() == first
    assert "Since the audit before" in page_of(root)
    assert "better" in page_of(root)


def test_a_sample_is_shown_plain_with_its_fault(root: Path, run: Command) -> None:
    done = run("show", "B3", "q3", root=root)
    assert (done.code, done.err) == (0, "")
    assert "\x1b" not in done.out
    assert "the reported completion_tokens do not fit the number of ids" in done.out
    assert "under “counts every id”" in done.out
    assert "[</think> 163607]" in done.out
    assert '"provider": "Chutes"' in done.out
    assert max(map(len, done.out.split("\n"))) <= 120


def test_a_sample_is_shown_before_any_audit_and_by_its_whole_name(root: Path, run: Command) -> None:
    shutil.rmtree(root / "reports")
    done = run("show", "B3", "q7/0/0", "--all", root=root)
    assert done.code == 0
    assert done.out.startswith("q7\n")
    assert "nothing was found to be wrong" in done.out


def test_machines_get_the_view_as_json(root: Path, run: Command) -> None:
    (view,) = json.loads(run("show", "B3", "q7", "--format", "json", "--all", root=root).out)
    assert view["sample_id"] == "q7"
    assert [window["part"] for window in view["windows"]] == ["prompt", "output"]
    assert view["windows"][1]["chips"][-1] == {"id": 163586, "kind": "control", "spells": "", "text": "<|im_end|>"}


@pytest.mark.parametrize("words", [("nobody",), ("q3", "--turn", "5"), ("q3", "--index", "1"), ("q3/0/9",)])
def test_a_sample_that_is_not_there_is_a_wrong_usage(root: Path, run: Command, words: tuple[str, ...]) -> None:
    done = run("show", "B3", *words, root=root)
    assert done.code == 2
    assert f"sample {words[0]!r}" in done.err


def test_a_hundred_thousand_failing_rows_make_no_large_page(root: Path, vocabulary: Vocabulary) -> None:
    """The quarantine is what it is: the page shows some of it, evenly, and counts the rest."""
    dataset = Workspace(root).dataset_named("B3")
    table = pq.read_table(dataset.quarantine)
    assert table.num_rows > 0
    many = pa.concat_tables([table] * (100_000 // table.num_rows + 1)).cast(QUARANTINE_SCHEMA)
    pq.write_table(many, dataset.quarantine)
    found = inspect(dataset, read_verdict(dataset.verdict), read_contract("kimi-k2.5"), lambda: vocabulary)
    assert found.left_off == ()
    assert max(found.failing.values()) >= 50_000
    assert len(render_html(read_verdict(dataset.verdict), found).encode()) < 400_000
