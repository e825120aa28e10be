"""The journal's lines: on the disk once flushed, cut at the last whole one when opened again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from toolkit.errors import StoreError
from toolkit.records import Entry, Failure, Origin
from toolkit.store.journal import (
    LineWriter,
    count_entries,
    journal_files,
    numbered_entries,
    read_entries,
    read_failures,
    write_failures,
)


def entry(sample_id: str, **changes: Any) -> Entry:
    fields: dict[str, Any] = {
        "row_key": "k", "sample_id": sample_id, "source": "s", "origin": Origin.GENERATE, "contract": "c", "mode": "m",
        "form": "openai", "body": "{}",
    }  # fmt: skip
    return Entry(**fields | changes)


def failure(reason: str) -> Failure:
    return Failure(reason=reason, detail="", final=True, where="here")


def written(path: Path, *names: str) -> Path:
    with LineWriter(path) as writer:
        for name in names:
            writer.write(entry(name))
    return path


def names_in(path: Path) -> list[str]:
    return [one.sample_id for one in read_entries(path)]


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "journal" / "1.jsonl"
    given = entry(
        "a", tool_ids={"x": "y"}, messages=[{"role": "user", "content": "日\u2028"}], stop=("s",), latency_s=0.5
    )
    with LineWriter(path) as writer:
        writer.write(given)
        writer.flush()
        assert list(read_entries(path)) == [given]
        writer.write(entry("b"))
    assert list(numbered_entries(path)) == [(1, given), (2, entry("b"))]
    assert count_entries(path.parent) == 2


@pytest.mark.parametrize("tail", [b"{", b'{"row_key": "k"', '{"row_key": "日'.encode()[:-1], b"x" * 200_000])
def test_a_torn_last_line_was_never_counted(tmp_path: Path, tail: bytes) -> None:
    path = written(tmp_path / "1.jsonl", "a", "b")
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    assert names_in(path) == ["a", "b"]
    assert count_entries(tmp_path) == 2
    written(path, "c")
    assert path.read_bytes().startswith(whole)
    assert names_in(path) == ["a", "b", "c"]


@pytest.mark.parametrize("content", [b"", b"{", b"x" * 70_000])
def test_a_file_without_a_whole_line_is_emptied(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "1.jsonl"
    path.write_bytes(content)
    written(path)
    assert path.read_bytes() == b""


@pytest.mark.parametrize("line", [b"{}", b"[]", b'{"row_key": 5}', b"\xff", b"null"])
def test_a_whole_line_that_is_no_entry(tmp_path: Path, line: bytes) -> None:
    path = written(tmp_path / "1.jsonl", "a")
    path.write_bytes(path.read_bytes() + b"\n" + line + b"\n")
    with pytest.raises(StoreError, match=r"1\.jsonl: line 3: expected a journal entry"):
        names_in(path)


def test_files_come_oldest_name_first_and_nothing_else(tmp_path: Path) -> None:
    assert journal_files(tmp_path / "none") == []
    for name in ("b.jsonl", "a.jsonl", "c.txt", ".d.jsonl.x.tmp"):
        (tmp_path / name).touch()
    assert [path.name for path in journal_files(tmp_path)] == ["a.jsonl", "b.jsonl"]


def test_a_pipe_among_the_files_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "1.jsonl")
    with pytest.raises(StoreError, match=r"1\.jsonl: cannot be read"):
        count_entries(tmp_path)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("in the way", encoding="utf-8")
    with pytest.raises(StoreError, match="cannot be written"):
        LineWriter(tmp_path / "journal" / "1.jsonl")


def test_failures_are_replaced_as_a_whole(tmp_path: Path) -> None:
    write_failures(tmp_path / "a.jsonl", [failure("one"), failure("two")])
    write_failures(tmp_path / "b.jsonl", [failure("three")])
    assert [one.reason for one in read_failures(tmp_path)] == ["one", "two", "three"]
    write_failures(tmp_path / "a.jsonl", [])
    assert [one.reason for one in read_failures(tmp_path)] == ["three"]
    (tmp_path / "c.jsonl").write_text("{}\n", encoding="utf-8")
    with pytest.raises(StoreError, match=r"c\.jsonl: line 1: expected a failure"):
        list(read_failures(tmp_path))
