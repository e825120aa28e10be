"""`audit --gx-json` and `--gx-docs`: Great Expectations' own results beside the verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.audit.workspace import MOSTLY_WHOLE, TEXT_STANDS, Bench, make_bench, write_suite
from toolkit.cli.gx_files import GxFiles
from toolkit.errors import StoreError
from toolkit.store.published import MARK
from toolkit.store.verdicts import read_verdict
from toolkit.vocabulary import Vocabulary

from .test_commands import imported, root  # noqa: F401 — fixtures
from .workspace import Command


@pytest.fixture
def bench(tmp_path: Path, vocabulary: Vocabulary) -> Bench:
    return make_bench(tmp_path / "work", vocabulary)


def audited(bench: Bench, gx: GxFiles) -> Any:
    gx.clear()
    verdict = bench.audit(publish=lambda evaluations: gx.keep("B3", evaluations))
    gx.write()
    return verdict


def test_what_is_written_is_what_the_verdict_says(bench: Bench, tmp_path: Path) -> None:
    bench.suites.append(write_suite(tmp_path / "work/expectations/other.json", TEXT_STANDS, MOSTLY_WHOLE))
    gx = GxFiles(json=tmp_path / "out" / "gx.json", docs=tmp_path / "out" / "docs")
    verdict = audited(bench, gx)
    found = json.loads((tmp_path / "out" / "gx.json").read_text(encoding="ascii"))
    assert [one["suite_name"] for one in found] == ["small", "other"]
    for one, run in zip(found, verdict.suites, strict=True):
        assert [r["expectation_config"]["meta"]["id"] for r in one["results"]] == [r.id for r in run.results]
        assert [r["success"] for r in one["results"]] == [r.success for r in run.results]
        counts = [r["result"].get("unexpected_count") for r in one["results"] if r["result"].get("element_count")]
        assert counts == [r.unexpected_count for r in run.results if r.unexpected_count is not None]
    assert len(list((tmp_path / "out" / "docs" / "validations").rglob("*.html"))) == 2
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["docs", "gx.json"]


def test_the_verdict_is_the_same_with_and_without(bench: Bench, tmp_path: Path) -> None:
    without = bench.audit()
    verdict = audited(bench, GxFiles(json=tmp_path / "gx.json", docs=None))
    assert verdict.suites == without.suites
    assert verdict.reasons == without.reasons


def test_another_audit_replaces_what_the_first_wrote(bench: Bench, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    audited(bench, GxFiles(json=None, docs=docs))
    (docs / "old.html").write_text("old", encoding="utf-8")
    audited(bench, GxFiles(json=None, docs=docs))
    assert not (docs / "old.html").exists()
    assert (docs / MARK).is_file()
    assert (docs / "index.html").is_file()


def test_a_folder_of_other_files_is_left_alone(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x", encoding="utf-8")
    with pytest.raises(StoreError, match="found other files"):
        audited(bench, GxFiles(json=None, docs=tmp_path / "mine"))
    assert (tmp_path / "mine" / "thesis.txt").read_text(encoding="utf-8") == "x"
    assert not bench.dataset.verdict.exists()
    with pytest.raises(StoreError, match="found a folder"):
        audited(bench, GxFiles(json=tmp_path / "mine", docs=None))


def test_an_audit_that_fails_leaves_none_of_an_earlier_one(bench: Bench, tmp_path: Path) -> None:
    def gx() -> GxFiles:
        return GxFiles(json=tmp_path / "gx.json", docs=tmp_path / "docs")

    audited(bench, gx())
    bench.dataset.live.write_text("{", encoding="utf-8")
    with pytest.raises(StoreError):
        audited(bench, gx())
    assert not (tmp_path / "gx.json").exists()
    assert not (tmp_path / "docs").exists()


def test_results_that_cannot_be_written_leave_the_verdict(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    gx = GxFiles(json=tmp_path / "file" / "gx.json", docs=None)
    bench.audit(publish=lambda evaluations: gx.keep("B3", evaluations))
    with pytest.raises(StoreError, match=r"gx\.json"):
        gx.write()
    assert read_verdict(bench.dataset.verdict).passed


def test_the_command(root: Path, run: Command, tmp_path: Path) -> None:  # noqa: F811
    file, docs = tmp_path / "gx.json", tmp_path / "docs"
    assert run("audit", "B3", "--gx-json", str(file), "--gx-docs", str(docs), root=root).code == 0
    assert {one["meta"]["tokenproof"]["dataset"] for one in json.loads(file.read_bytes())} == {"B3_numbers"}
    assert (docs / "index.html").is_file()
    assert run("audit", "--all", "--gx-json", str(file), root=root).code == 0
    assert {one["meta"]["tokenproof"]["dataset"] for one in json.loads(file.read_bytes())} == {"B3_numbers"}
