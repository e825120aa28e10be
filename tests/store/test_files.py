"""Files: what is no regular file is refused, what stands is never taken for absent, writes are whole or not at all."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from toolkit.errors import StoreError
from toolkit.store.files import files_in, numbered_lines, read_bytes, sha256_of, sole_writer, stands, write_atomic

READERS: list[Callable[[Path], object]] = [read_bytes, sha256_of]


def test_a_file_and_a_link_to_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    (tmp_path / "b").symlink_to("a")
    assert read_bytes(tmp_path / "b") == b"content"
    assert sha256_of(tmp_path / "b") == "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"


@pytest.mark.parametrize("read", READERS)
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, read: Callable[[Path], object]) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to("loop")
    for name, says in (
        ("pipe", "expected a regular file, found a pipe"),
        ("link", "expected a regular file, found a pipe"),
        ("zero", "expected a regular file, found a device"),
        ("loop", "Too many levels of symbolic links"),
        ("none", "No such file or directory"),
        (".", "Is a directory"),
        ("x" * 300, "File name too long"),
        ("a\0b", "its name holds a NUL character"),
        ("\ud800", "its name holds half a surrogate pair"),
    ):
        with pytest.raises(StoreError, match="cannot be read: ") as caught:
            read(tmp_path / name)
        assert str(caught.value).endswith(says)


def test_a_pipe_that_somebody_writes_to_is_refused_too(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR)
    try:
        os.write(held, b"content")
        with pytest.raises(StoreError, match="found a pipe"):
            read_bytes(pipe)
    finally:
        os.close(held)


def test_numbered_lines(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfone\r\n\n  \nfour\nfive")
    assert list(numbered_lines(tmp_path / "a")) == [(1, b"one"), (4, b"four"), (5, b"five")]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="expected a regular file, found a pipe"):
        list(numbered_lines(tmp_path / "pipe"))


def test_what_stands_and_what_does_not(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    assert [stands(tmp_path / name) for name in ("file", "dangling", "loop", ".")] == [True] * 4
    names = ("none", "file/below", "x" * 300, "a\0b", "\ud800")
    assert [stands(tmp_path / name) for name in names] == [False] * 5
    with pytest.raises(StoreError, match="cannot be read: Too many levels"):
        stands(tmp_path / "loop" / "below")


def test_files_in_a_folder(tmp_path: Path) -> None:
    for name in ("b.toml", "a.toml", "c.json"):
        (tmp_path / name).touch()
    assert [path.name for path in files_in(tmp_path, ".toml")] == ["a.toml", "b.toml"]
    assert files_in(tmp_path / "none", ".toml") == []
    for name in ("a.toml", "a\0b"):
        with pytest.raises(StoreError, match="cannot be read: "):
            files_in(tmp_path / name, ".toml")


def test_a_write_is_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "a"
    write_atomic(path, b"one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert [p.name for p in path.parent.iterdir()] == ["a"]


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "\ud800", "file/below", "folder"])
def test_a_write_that_cannot_be(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="cannot be written: "):
        write_atomic(tmp_path / name, b"x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    lock = tmp_path / "B3" / ".lock"
    with sole_writer(lock):
        refused: list[str] = []

        def second() -> None:
            try:
                with sole_writer(lock):
                    pass
            except StoreError as error:
                refused.append(str(error))

        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert refused == [f"{lock.parent}: another process is writing to this dataset; wait until it ends"]
    with sole_writer(lock):
        pass


def test_a_lock_that_is_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    with pytest.raises(StoreError, match=r"\.lock: cannot be written"), sole_writer(tmp_path / ".lock"):
        pass
