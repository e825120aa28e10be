"""Workspaces in object storage, against a real S3 server on loopback."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.object_storage import endpoint, files
from toolkit.errors import ConfigError, StoreError, UnreachableError
from toolkit.store.remote import Bucket, Place, Use, fetched, is_remote, place_of, shown_root

__all__ = ["endpoint", "files"]

PLACE = Place("proofs", "team/w")


def put(files: Any, name: str, content: bytes) -> None:
    with files.open_output_stream(f"proofs/team/w/{name}") as stream:
        stream.write(content)


def stored(files: Any) -> dict[str, bytes]:
    bucket = Bucket(PLACE)
    found = {}
    for name in bucket.names(""):
        with files.open_input_stream(f"proofs/team/w/{name}") as stream:
            found[name] = stream.read()
    return found


@pytest.fixture
def workspace(files: Any) -> Any:
    put(files, "tokenproof.toml", b"# settings")
    put(files, "expectations/own.json", b"{}")
    put(files, "datasets/B3/shards.json", b"[]")
    put(files, "datasets/B3/shards/part-00000.parquet", b"rows" * 1000)
    put(files, "datasets/B4/shards.json", b"[]")
    put(files, "reports/B3/verdict.json", b"old")
    put(files, "reports/B3/index.html", b"old page")
    put(files, "datasets/B3/facts/gone.parquet", b"old facts")
    return files


def test_places() -> None:
    assert place_of(Path("s3://proofs/team/w/")) == PLACE == place_of("s3://proofs/team/w")
    assert str(place_of("s3://proofs")) == "s3://proofs"
    assert (is_remote(Path("s3://proofs")), is_remote(Path("s3"))) == (True, False)


def test_keys_in_a_root_are_not_repeated() -> None:
    with pytest.raises(ConfigError, match=r"^--root s3:/\*\*\*@bucket/x: expected s3://BUCKET") as refused:
        place_of(Path("s3://AKIAKEY:SECRET@bucket/x"))
    assert "AKIAKEY" not in str(refused.value)
    assert shown_root("s3://AKIAKEY:SEC/RET@bucket/x") == "s3://***@bucket/x"
    assert shown_root("/home/me@work") == "/home/me@work"


def test_an_endpoint_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "ftp://user:word@127.0.0.1:1")
    with pytest.raises(ConfigError, match="AWS_ENDPOINT_URL: expected") as refused:
        Bucket(PLACE)
    assert "word" not in str(refused.value)


def test_only_reports_are_withdrawn(workspace: Any) -> None:
    put(workspace, "expectations/verdict.json", b"a suite")
    put(workspace, "datasets/B3/summary.md", b"notes")
    with fetched(PLACE, ["B3"], use=Use.AUDIT):
        pass
    names = stored(workspace)
    assert (names["expectations/verdict.json"], names["datasets/B3/summary.md"]) == (b"a suite", b"notes")


def test_nothing_is_fetched_to_a_place_outside_of_the_folder(files: Any, tmp_path: Path) -> None:
    put(files, "own.txt", b"x")
    for name in ("../own.txt", "a/../../own.txt", "/own.txt"):
        with pytest.raises(StoreError, match="expected a name that a file can have"):
            Bucket(PLACE).fetch_all([name], tmp_path / "in")
        with pytest.raises(StoreError, match="expected a name that a file can have"):
            Bucket(PLACE).fetch(name, tmp_path / "in")


@pytest.mark.parametrize("root", ["s3://", "s3://A", "s3://x/../y", "s3://proofs/a//b", "s3://pro\nofs/a"])
def test_what_is_no_place(root: str) -> None:
    with pytest.raises(ConfigError, match="expected s3://BUCKET"):
        place_of(root)


def test_one_dataset_is_fetched_and_results_are_put_back(workspace: Any) -> None:
    with fetched(PLACE, ["B3"], use=Use.AUDIT) as root:
        assert (root / "datasets/B3/shards/part-00000.parquet").read_bytes() == b"rows" * 1000
        assert (root / "tokenproof.toml").is_file()
        assert not (root / "datasets/B4").exists()
        names = stored(workspace)
        assert "reports/B3/verdict.json" not in names
        assert "reports/B3/index.html" not in names
        (root / "reports/B3/verdict.json").write_bytes(b"new")
        (root / "reports/B3/index.html").unlink()
        (root / "datasets/B3/facts/gone.parquet").unlink()
        (root / "datasets/B3/facts/new.parquet").write_bytes(b"facts")
        (root / "datasets/B3/.lock").touch()
        (root / "datasets/B3/prompts.jsonl").write_bytes(b"not a result")
    names = stored(workspace)
    assert names["reports/B3/verdict.json"] == b"new"
    assert names["datasets/B3/facts/new.parquet"] == b"facts"
    gone = {"reports/B3/index.html", "datasets/B3/facts/gone.parquet", "datasets/B3/.lock", "datasets/B3/prompts.jsonl"}
    assert not gone & set(names)


def test_reading_changes_nothing(workspace: Any) -> None:
    before = stored(workspace)
    with fetched(PLACE, None, use=Use.READ) as root:
        assert (root / "datasets/B4/shards.json").is_file()
        (root / "reports/B3/verdict.json").write_bytes(b"forged")
    assert stored(workspace) == before


def test_an_audit_that_fails_leaves_no_verdict_there(workspace: Any) -> None:
    def fail() -> None:
        with fetched(PLACE, ["B3"], use=Use.AUDIT) as root:
            (root / "reports/B3/verdict.json").unlink()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert "reports/B3/verdict.json" not in stored(workspace)


def test_a_unique_beginning_of_a_name_is_enough(workspace: Any) -> None:
    put(workspace, "datasets/C1_code/shards.json", b"[]")
    with fetched(PLACE, ["C"], use=Use.READ) as root:
        assert [path.name for path in (root / "datasets").iterdir()] == ["C1_code"]
    with pytest.raises(ConfigError, match="expected one, found 2"), fetched(PLACE, ["B"], use=Use.READ):
        raise AssertionError


def test_a_stage_that_did_not_begin_leaves_all_as_it_was_but_withdrawn(workspace: Any) -> None:
    with pytest.raises(RuntimeError), fetched(PLACE, ["B3"], use=Use.AUDIT):
        raise RuntimeError
    names = stored(workspace)
    assert (names["reports/B3/verdict.json"], names["reports/B3/index.html"]) == (b"old", b"old page")


def test_the_verdict_is_put_last(workspace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    put_one = Bucket._put

    def noted(self: Bucket, path: Path, name: str) -> None:
        order.append(name)
        put_one(self, path, name)

    monkeypatch.setattr(Bucket, "_put", noted)
    with fetched(PLACE, ["B3"], use=Use.AUDIT) as root:
        for name in ("verdict.json", "index.html", "quarantine.parquet", "a.txt"):
            (root / "reports/B3" / name).write_bytes(b"1")
    assert order[-1] == "reports/B3/verdict.json"
    assert len(order) == 4


def test_names_that_lead_outside_are_refused(workspace: Any) -> None:
    put(workspace, "datasets/B3/..\\..\\x", b"1")
    with pytest.raises(StoreError, match="expected a name that a file can have"), fetched(PLACE, ["B3"], use=Use.READ):
        raise AssertionError


def test_what_cannot_be_reached_is_named(files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no such folder"), fetched(Place("proofs", "empty"), ["B3"], use=Use.READ):
        raise AssertionError
    with pytest.raises(StoreError, match="s3://elsewhere"), fetched(Place("elsewhere", ""), ["B3"], use=Use.AUDIT):
        raise AssertionError
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
    with pytest.raises(UnreachableError, match="cannot be listed") as told, fetched(PLACE, ["B3"], use=Use.READ):
        raise AssertionError
    assert "testing" not in str(told.value)


def test_shards_and_facts_can_be_left_to_others(workspace: Any) -> None:
    with fetched(PLACE, ["B3"], use=Use.AUDIT, shards=False) as root:
        assert sorted(path.name for path in (root / "datasets/B3").iterdir()) == ["shards.json"]
        put(workspace, "datasets/B3/facts/a-task.parquet", b"facts of a task")
        (root / "datasets/B3/facts").mkdir()
        (root / "datasets/B3/facts/a-task.parquet").write_bytes(b"a copy of them")
        (root / "reports/B3/verdict.json").write_bytes(b"new")
    names = stored(workspace)
    assert names["datasets/B3/facts/a-task.parquet"] == b"facts of a task"
    assert names["datasets/B3/facts/gone.parquet"] == b"old facts"
    assert names["reports/B3/verdict.json"] == b"new"


def test_a_report_leaves_the_verdict_where_it_is(workspace: Any) -> None:
    with fetched(PLACE, ["B3"], use=Use.REPORT) as root:
        assert stored(workspace)["reports/B3/verdict.json"] == b"old"
        put(workspace, "reports/B3/verdict.json", b"of an audit meanwhile")
        (root / "reports/B3/index.html").write_bytes(b"new page")
    names = stored(workspace)
    assert (names["reports/B3/index.html"], names["reports/B3/verdict.json"]) == (b"new page", b"of an audit meanwhile")


def test_copies_are_as_old_as_what_they_are_copies_of(workspace: Any) -> None:
    name = "datasets/B3/shards/part-00000.parquet"
    there = workspace.get_file_info(f"proofs/team/w/{name}").mtime_ns
    with fetched(PLACE, ["B3"], use=Use.READ) as root:
        assert (root / name).stat().st_mtime_ns == there


def test_one_object_is_opened_fetched_and_put(workspace: Any, tmp_path: Path) -> None:
    bucket = Bucket(PLACE)
    with bucket.open("datasets/B3/shards/part-00000.parquet") as file:
        file.seek(3_996)
        assert file.read() == b"rows"
    with pytest.raises(FileNotFoundError):
        bucket.open("datasets/B3/shards/part-00001.parquet")
    assert not bucket.fetch("datasets/B3/shards/part-00001.parquet", tmp_path)
    assert bucket.fetch("datasets/B3/shards.json", tmp_path)
    (tmp_path / "datasets/B3/shards.json").write_bytes(b"[1]")
    bucket.put(tmp_path, "datasets/B3/shards.json")
    assert stored(workspace)["datasets/B3/shards.json"] == b"[1]"
