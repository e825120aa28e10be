"""A workspace in object storage, through the commands: audit, status, report, show, diff and merge over s3://."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import FileSelector, FileType

from tests.object_storage import BUCKET, endpoint, files
from toolkit.vocabulary import Vocabulary

from .workspace import Command, batch_line, write_lines, write_prompts

__all__ = ["endpoint", "files"]

REMOTE = Path(f"s3://{BUCKET}/w")
SHARD = "datasets/B3/shards/part-00000.parquet"


@pytest.fixture
def root(tmp_path: Path, vocabulary: Vocabulary, run: Command) -> Path:
    """A local workspace with ten imported answers, not audited."""
    root = tmp_path / "local"
    source = write_lines(tmp_path / "batch.jsonl", [batch_line(vocabulary, i) for i in range(10)])
    write_prompts(root, "B3", 10)
    assert run("import", "B3", str(source), root=root).code == 0
    return root


def put(files: Any, name: str, content: bytes) -> None:
    with files.open_output_stream(f"{BUCKET}/w/{name}") as stream:
        stream.write(content)


def get(files: Any, name: str) -> bytes:
    with files.open_input_stream(f"{BUCKET}/w/{name}") as stream:
        return bytes(stream.read())


def names(files: Any) -> list[str]:
    found = files.get_file_info(FileSelector(f"{BUCKET}/w", recursive=True))
    return sorted(info.path.removeprefix(f"{BUCKET}/w/") for info in found if info.type == FileType.File)


def upload(files: Any, root: Path) -> None:
    for path in root.rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            put(files, str(path.relative_to(root)), path.read_bytes())


def verdict_of(content: bytes) -> dict[str, Any]:
    of_the_moment = ("created_at", "elapsed_s")
    return {name: value for name, value in json.loads(content).items() if name not in of_the_moment}


def test_audit_and_merge_over_object_storage(files: Any, root: Path, run: Command, tmp_path: Path) -> None:
    upload(files, root)
    assert run("audit", "B3", root=root).code == 0
    audited = run("audit", "B", root=REMOTE)
    assert (audited.code, "s3://proofs/w/reports/B3/index.html" in audited.out) == (0, True), audited.err
    assert verdict_of(get(files, "reports/B3/verdict.json")) == verdict_of(
        (root / "reports/B3/verdict.json").read_bytes()
    )
    made = names(files)
    assert {f"reports/B3/{name}" for name in ("index.html", "junit.xml", "summary.md", "quarantine.parquet")} <= set(
        made
    )
    assert len([name for name in made if name.startswith("datasets/B3/facts/")]) == 2
    here, there = (run("merge", "B3", "-o", str(tmp_path / name), root=where)
                   for name, where in (("here", root), ("there", REMOTE)))  # fmt: skip
    assert (here.code, there.code) == (0, 0), there.err
    for path in (tmp_path / "here").rglob("*.parquet"):
        assert (tmp_path / "there" / path.relative_to(tmp_path / "here")).read_bytes() == path.read_bytes()
    assert names(files) == made
    assert "passed" in run("status", "B3", root=REMOTE).out
    assert "q3" in run("show", "B3", "q3", root=REMOTE).out
    again = run("report", "B3", root=REMOTE)
    assert (again.code, "s3://proofs/w/reports/B3/junit.xml" in again.out) == (0, True)
    assert run("audit", "B3", root=REMOTE).code == 0
    assert run("diff", "B3", root=REMOTE).code == 0
    assert verdict_of(get(files, "reports/B3/verdict.json"))["measured_shards"] == 0


def test_a_cut_object_is_named_and_closes_the_gate(files: Any, root: Path, run: Command, tmp_path: Path) -> None:
    upload(files, root)
    early = run("merge", "B3", "-o", str(tmp_path / "train"), root=REMOTE)
    assert (early.code, "next: tokenproof audit B3 --root s3://proofs/w\n" in early.err) == (1, True), early.err
    assert run("audit", "B3", root=REMOTE).code == 0
    put(files, SHARD, (root / SHARD).read_bytes()[:-100])
    assert run("status", "B3", root=REMOTE).out.count("damaged or cut short") == 1
    refused = run("merge", "B3", "-o", str(tmp_path / "train"), root=REMOTE)
    assert (refused.code, "B3/shards/part-00000.parquet" in refused.err) == (1, True)
    assert "/tmp" not in refused.err.replace(str(tmp_path), "")
    audited = run("audit", "B3", root=REMOTE)
    assert audited.code == 3
    assert "B3/shards/part-00000.parquet" in audited.out
    assert verdict_of(get(files, "reports/B3/verdict.json"))["passed"] is False


def test_what_is_not_there_or_cannot_be_done(files: Any, root: Path, run: Command) -> None:
    upload(files, root)
    missing = run("audit", "C", root=REMOTE)
    assert (missing.code, "no such folder in s3://proofs/w/datasets" in missing.err) == (2, True)
    assert run("audit", "B3", root=Path("s3://nobody/w")).code == 3
    assert run("status", "B3", "--watch", root=REMOTE).code == 2
    assert run("merge", "B3", "-o", "s3://proofs/train", root=REMOTE).code == 2
    assert run("audit", "B3", "--ray-address", "127.0.0.1:1", root=REMOTE).code == 2
    (root / "tokenproof.toml").write_text("nonsense = 1\n", encoding="utf-8")
    put(files, "tokenproof.toml", b"nonsense = 1\n")
    faulty = run("audit", "B3", root=REMOTE)
    assert (faulty.code, "tokenproof.toml: nonsense" in faulty.err) == (2, True), faulty.err
