"""The journal's lines: on the disk once flushed, cut at the last whole one when opened again."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import orjson
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
    spelled,
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


@pytest.mark.parametrize(
    "text", ["", "{}", "".join(map(chr, range(0x120))), "\u2028\u2029\ufeff\U0001f600", '\\"' * 99]
)
def test_a_body_that_is_spelled_already_makes_the_same_line(tmp_path: Path, text: str) -> None:
    assert spelled(text) == orjson.dumps(text)
    for name, body in (("plain", None), ("spliced", spelled(text))):
        with LineWriter(tmp_path / name) as writer:
            writer.write(entry("a", body=text), body)
    assert (tmp_path / "plain").read_bytes() == (tmp_path / "spliced").read_bytes()
    assert [one.body for one in read_entries(tmp_path / "spliced")] == [text]


def test_the_disk_is_asked_for_once_for_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    fdatasync = os.fdatasync

    def sync(handle: int) -> None:
        synced.append(handle)
        if len(synced) == 2:
            raise OSError(errno.EIO, "Input/output error")
        fdatasync(handle)

    monkeypatch.setattr(os, "fdatasync", sync)
    with LineWriter(tmp_path / "1.jsonl") as writer:
        writer.flush()
        assert len(synced) == 0
        writer.write(entry("a"))
        writer.flush()
        writer.flush()
        assert len(synced) == 1
        writer.write(entry("b"))
        with pytest.raises(StoreError, match="Input/output error"):
            writer.flush()
        # What is not on the disk is not taken for flushed.
        writer.flush()
        assert len(synced) == 3
    assert len(synced) == 3
    assert names_in(tmp_path / "1.jsonl") == ["a", "b"]


def test_a_flush_that_is_interrupted_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []

    def sync(handle: int) -> None:
        synced.append(handle)
        if len(synced) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "fdatasync", sync)
    writer = LineWriter(tmp_path / "1.jsonl")
    writer.write(entry("a"))
    with pytest.raises(KeyboardInterrupt):
        writer.flush()
    writer.close()
    assert len(synced) == 2


def test_a_flush_waits_for_one_that_goes_on_in_another_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began, may_end = threading.Event(), threading.Event()

    def sync(handle: int) -> None:
        began.set()
        may_end.wait(10)
        raise OSError(errno.EIO, "Input/output error")

    def flush() -> None:
        with pytest.raises(StoreError, match="Input/output error"):
            writer.flush()

    monkeypatch.setattr(os, "fdatasync", sync)
    writer = LineWriter(tmp_path / "1.jsonl")
    writer.write(entry("a"))
    other = threading.Thread(target=flush)
    other.start()
    assert began.wait(10)
    threading.Timer(0.05, may_end.set).start()
    # Whoever closes meanwhile is told as well that it is not on the disk.
    with pytest.raises(StoreError, match="Input/output error"):
        writer.close()
    other.join()
    monkeypatch.undo()
    writer.close()


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
