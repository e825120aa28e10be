"""The face of every command: exit code, who is told what, and JSON where JSON was asked for, hostile input included."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer

from toolkit.cli import audit_main, main
from toolkit.cli.app import app
from toolkit.contract import SHIPPED
from toolkit.errors import GateClosed, StoreError
from toolkit.vocabulary import Vocabulary

from .workspace import Command, Outcome, batch_line, write_lines, write_prompts

LONG = "x" * 5_000
SCRIPT = Path(sys.executable).with_name("tokenproof")
KIMI = (SHIPPED / "kimi-k2.5.toml").read_text(encoding="utf-8")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with one dataset of two prompts and no answers."""
    folder = tmp_path / "w"
    write_prompts(folder, "B3_numbers", 2)
    return folder


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """`call("audit", "B3")` is exactly `tokenproof audit B3`."""

    def command(*words: str, entry: Callable[[], None] = main) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["tokenproof", *words])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            entry()
        captured = capfd.readouterr()
        return Outcome(int(ended.value.code or 0), captured.out, captured.err)

    return command


def error_of(outcome: Outcome) -> dict[str, Any]:
    """The JSON error object, which is all there is on standard output."""
    (line,) = outcome.out.splitlines()
    error: dict[str, Any] = json.loads(line)
    assert set(error) == {"error", "message", "exit_code"}
    assert error["exit_code"] == outcome.code
    return error


def is_harmless(text: str) -> bool:
    return all(char.isprintable() or char == "\n" for char in text)


# --- command lines that no command understands ---------------------------------------------------

USAGE = [
    # (command line, what the message says)
    ("bogus", "no such command 'bogus'; see tokenproof --help"),
    ("--bogus", "no such option: --bogus"),
    ("audit", "audit: missing argument 'name'; see tokenproof audit --help"),
    ("audit B3 B4", "audit: got unexpected extra argument"),
    ("audit B3 --siute x", "no such option: --siute"),
    ("audit B3 --suite", "'--suite' requires an argument"),
    ("audit B3 --format xml", "audit: invalid value for '--format': 'xml' is not one of 'text', 'json'"),
    ("import B3", "import: missing argument 'files"),
    ("import B3 f.jsonl --moed x", "no such option: --moed"),
    ("generate", "generate: missing argument"),
    ("generate B3 --samples none", "generate: invalid value for '--samples'"),
    ("generate B3 --samples 0", "generate: invalid value for '--samples'"),
    ("merge B3", "merge: missing option '--output'"),
    ("merge -o train", "merge: missing argument"),
    ("merge B3 -o train --seed x", "merge: invalid value for '--seed'"),
    ("simulate --port 65536", "simulate: invalid value for '--port'"),
    ("contract bogus", "contract: no such command 'bogus'; see tokenproof contract --help"),
    ("contract check", "contract check: missing argument"),
    ("contract list extra", "contract list: got unexpected extra argument"),
]


@pytest.mark.parametrize(("line", "says"), USAGE, ids=[line for line, _ in USAGE])
def test_a_command_line_that_cannot_be_read(call: Command, line: str, says: str) -> None:
    told = call(*line.split())
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("tokenproof: ")
    assert told.err.count("\n") == 1
    assert says in told.err


@pytest.mark.parametrize("line", [line for line, _ in USAGE if not line.endswith(("xml", "--suite"))])
@pytest.mark.parametrize("form", [["--format", "json"], ["--format=json"]])
def test_machines_get_an_error_object_for_it(call: Command, line: str, form: list[str]) -> None:
    told = call(*line.split(), *form)
    assert told.code == 2
    assert error_of(told)["error"] == "UsageError"
    assert told.err == ""


@pytest.mark.parametrize(
    ("words", "as_json"),
    [
        (["--format", "json"], True),
        (["--format=json"], True),
        (["--format", "json", "--format", "text"], False),
        (["--format", "text", "--format=json"], True),
        (["--", "--format", "json"], False),
        (["--format"], False),
    ],
)
def test_the_last_format_counts(call: Command, words: list[str], as_json: bool) -> None:
    told = call("bogus", *words)
    assert told.code == 2
    assert (told.out != "") is as_json
    assert (told.err == "") is as_json


@pytest.mark.parametrize("words", [[], ["contract"]])
def test_without_a_command_there_is_help_and_code_2(call: Command, words: list[str]) -> None:
    told = call(*words)
    assert told.code == 2
    assert "Usage: tokenproof" in told.out
    assert told.err == ""


def commands() -> list[str]:
    """Every command that there is, as it is typed."""

    def below(group: Any, path: str) -> Iterator[str]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from below(command, f"{path}{name} ")
            else:
                yield f"{path}{name}"

    return list(below(typer.main.get_command(app), ""))


def test_the_commands() -> None:
    assert {"generate", "import", "audit", "merge", "simulate", "contract list", "contract check"} <= set(commands())


@pytest.mark.parametrize("command", commands())
def test_every_command_has_help_a_root_and_a_format(call: Command, command: str) -> None:
    told = call(*command.split(), "--help")
    assert (told.code, told.err) == (0, "")
    assert f"Usage: tokenproof {command}" in told.out
    assert "--root" in told.out
    assert "--format" in told.out


def test_audit_is_a_command_of_its_own(call: Command) -> None:
    told = call(entry=audit_main)
    assert told.code == 2
    assert "audit: missing argument 'name'; see tokenproof audit --help" in told.err


def test_the_version(call: Command) -> None:
    told = call("--version")
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith("tokenproof ")


@pytest.mark.parametrize("command", ["audit", "generate", "import B3", "merge -o t", "contract check"])
def test_bytes_that_are_no_text(call: Command, command: str) -> None:
    told = call(*command.split(), os.fsdecode(b"B\xff3"), "--format", "json")
    assert told.code == 2
    assert "expected UTF-8" in error_of(told)["message"]


# --- names ---------------------------------------------------------------------------------------

NAMES = [
    # (command line, one of whose words is NAME, exit code, what the message says)
    ("audit NAME", "dataset"),
    ("generate NAME", "dataset"),
    ("import NAME f.jsonl", "dataset"),
    ("merge NAME -o train", "dataset"),
    ("audit B3 --suite NAME", "suite"),
    ("audit B3 --suite ./NAME.json", "cannot read the suite"),
    ("contract check NAME", "contract"),
    ("contract check ./NAME.toml", "not found"),
    ("simulate --contract NAME", "contract"),
]


@pytest.mark.parametrize("name", [LONG, "a\0b", "a\x1b[31mb\u202e", "日" * 90], ids=["long", "nul", "escape", "bytes"])
@pytest.mark.parametrize(("line", "says"), NAMES, ids=[line for line, _ in NAMES])
def test_names_that_nothing_can_have(root: Path, run: Command, line: str, says: str, name: str) -> None:
    told = run(*(word.replace("NAME", name) for word in line.split()), root=root)
    assert (told.code, told.out) == (2, "")
    assert says in told.err
    assert is_harmless(told.err)
    assert sorted(path.name for path in root.iterdir()) == ["datasets"]


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "/etc", "a\\b", "tab\there"])
def test_names_that_are_no_folder_below_datasets(root: Path, run: Command, name: str) -> None:
    told = run("audit", name, root=root)
    assert told.code == 2
    assert "expected the name of a folder below" in told.err


# --- roots ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "audit B3",
        "generate B3",
        "import B3 f",
        "merge B3 -o t",
        "contract list",
        "contract check kimi-k2.5",
        "simulate",
    ],
)
def test_a_root_that_is_none(tmp_path: Path, run: Command, line: str) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "loop").symlink_to("loop")
    for name, says in (("none", "nothing of that name"), ("file", "found a file"), ("loop", ""), (LONG, "too long")):
        told = run(*line.split(), root=tmp_path / name)
        assert told.code == 2, name
        assert "expected a folder" in told.err or "--root" in told.err
        assert says in told.err


def test_a_relative_root_and_relative_paths_in_the_settings(
    root: Path, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root.parent)
    (root / "mine").mkdir()
    (root / "mine/kimi.toml").write_text(KIMI.replace("title =", "titel ="), encoding="utf-8")
    (root / "tokenproof.toml").write_text('[defaults]\ncontract = "mine/kimi.toml"\n', encoding="utf-8")
    told = run("audit", "B3", root=Path("w"))
    assert told.code == 2
    assert "w/mine/kimi.toml: titel: unknown key; did you mean title?" in told.err


def test_a_workspace_without_datasets(tmp_path: Path, run: Command) -> None:
    told = run("audit", "B3", root=tmp_path)
    assert told.code == 2
    assert f"{tmp_path / 'datasets'} is missing" in told.err


# --- files that are none -------------------------------------------------------------------------


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def make_dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def make_folder(path: Path) -> None:
    path.mkdir()


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


MAKERS = [
    (make_pipe, "expected a regular file, found a pipe"),
    (make_device, "expected a regular file, found a device"),
    (make_loop, "Too many levels of symbolic links"),
    (make_dangling, "No such file or directory"),
    (make_folder, "Is a directory"),
]
PLACES = [
    # (place below the root, command line, exit code)
    ("tokenproof.toml", "audit B3", 3),
    ("contracts/kimi-k2.5.toml", "audit B3", 2),
    ("contracts/kimi-k2.5.toml", "contract check kimi-k2.5", 2),
    ("contracts/kimi-k2.5.toml", "simulate", 2),
    ("expectations/kimi-k2.5.json", "audit B3", 2),
    ("datasets/B3_numbers/shards.json", "audit B3", 3),
]


@pytest.mark.parametrize(("place", "line", "code"), PLACES, ids=[f"{place}-{line}" for place, line, _ in PLACES])
@pytest.mark.parametrize(("make", "says"), MAKERS, ids=[make.__name__ for make, _ in MAKERS])
def test_what_is_no_file_neither_hangs_nor_counts_as_absent(
    root: Path, run: Command, place: str, line: str, code: int, make: Callable[[Path], None], says: str
) -> None:
    if place.endswith("shards.json") and make is make_dangling:
        says = "no shards"
    elif place.endswith("shards.json") and make is make_loop:
        says = ""
    path = root / place
    path.parent.mkdir(exist_ok=True)
    make(path)
    told = run(*line.split(), root=root)
    assert (told.code, told.out) == (code, "")
    assert Path(place).name in told.err
    assert says in told.err


@pytest.mark.parametrize("make", [make_pipe, make_loop, make_device], ids=lambda make: make.__name__)
@pytest.mark.parametrize("line", ["audit B3", "generate B3"])
def test_prompts_that_are_no_file(root: Path, run: Command, line: str, make: Callable[[Path], None]) -> None:
    prompts = root / "datasets/B3_numbers/prompts.jsonl"
    prompts.unlink()
    make(prompts)
    told = run(*line.split(), root=root)
    assert told.code in (2, 3)
    assert "prompts.jsonl: cannot be read" in told.err


@pytest.mark.parametrize("name", ["datasets", "datasets/B3_numbers/journal", "datasets/B3_numbers/failures"])
def test_folders_that_are_none(root: Path, run: Command, name: str) -> None:
    path = root / name
    if path.exists():
        path.rename(root / "elsewhere")
    path.write_text("", encoding="utf-8")
    told = run("audit", "B3", root=root)
    assert told.code in (2, 3)
    assert str(path) in told.err
    path.unlink()
    path.symlink_to(path.name)
    told = run("audit", "B3", root=root)
    assert told.code == 3
    assert f"{path}: cannot be read: Too many levels" in told.err


HOSTILE_TOML = [
    ("nested", b"a = " + b"[" * 100_000, "levels"),
    ("dotted", b"a" + b".a" * 1_000 + b" = 1", "levels"),
    ("nul", b'a = "\0"', r"illegal character '\x00'"),
    ("nul name", b'[defaults]\ncontract = "a\\u0000b"', "contract 'a"),
    ("nul path", b'[defaults]\nsuites = ["a\\u0000/b"]', "its name holds a NUL character"),
    ("not utf-8", b'a = "\xff"', "UTF-8"),
    ("digits", b"[defaults]\nsamples = " + b"9" * 5_000, "TOML"),
    ("large", b"#" * (5 << 20), "bytes"),
]


@pytest.mark.parametrize(
    ("content", "says"), [case[1:] for case in HOSTILE_TOML], ids=[case[0] for case in HOSTILE_TOML]
)
def test_settings_that_are_hostile(root: Path, run: Command, content: bytes, says: str) -> None:
    (root / "tokenproof.toml").write_bytes(content)
    told = run("audit", "B3", root=root)
    assert (told.code, told.out) == (2, "")
    assert says in told.err
    assert is_harmless(told.err)
    assert len(told.err) < 2_500


def without_privileges() -> list[str]:
    """A command in front of another that takes root's right to pass over permissions away, where we are root."""
    if os.geteuid() != 0:
        return []
    code = (
        "import ctypes, os, sys; c = ctypes.CDLL(None);"
        "[c.prctl(24, n, 0, 0, 0) == 0 or sys.exit(99) for n in (1, 2)]; os.execv(sys.argv[1], sys.argv[1:])"
    )
    return [sys.executable, "-c", code]


@pytest.mark.parametrize(
    ("place", "line", "code"),
    [
        ("", "audit B3", 2),
        ("tokenproof.toml", "audit B3", 3),
        ("datasets", "audit B3", 3),
        ("datasets/B3_numbers", "audit B3", 3),
        ("datasets/B3_numbers/prompts.jsonl", "audit B3", 2),
        ("contracts", "contract list", 3),
        ("contracts", "contract check kimi-k2.5", 2),
        ("expectations", "audit B3", 3),
    ],
)
def test_places_that_may_not_be_read(root: Path, place: str, line: str, code: int) -> None:
    for folder in ("contracts", "expectations"):
        (root / folder).mkdir()
    (root / "tokenproof.toml").touch()
    path = root / place
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        words = [*without_privileges(), str(SCRIPT), *line.split(), "--root", str(root), "--format", "json"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    finally:
        path.chmod(mode)
    assert done.returncode == code, done.stderr
    message = error_of(Outcome(done.returncode, done.stdout, done.stderr))["message"]
    assert "Permission denied" in message or "not readable" in message
    assert place in message


# --- what nobody foresaw -------------------------------------------------------------------------


class PanicError(BaseException):
    """What native libraries raise is not always an Exception."""


FATES = [
    # (error, exit code, name of the error, what the message says)
    (KeyError("x\x1b[31m"), 3, "InternalError", "internal error: KeyError: "),
    (PanicError("entry\nmissing"), 3, "InternalError", "internal error: "),
    (RecursionError(), 3, "InternalError", "internal error: RecursionError"),
    (OSError(errno.ENOSPC, "No space left on device", "/data/x"), 3, "StoreError", "/data/x: No space left on device"),
    (OSError(errno.ENOSPC, "No space left on device"), 3, "StoreError", "No space left on device (in toolkit/cli/"),
    (BrokenPipeError(errno.EPIPE, "Broken pipe"), 3, "StoreError", "Broken pipe (in toolkit/cli/"),
    (MemoryError(), 3, "StoreError", "out of memory (in toolkit/cli/"),
    (KeyboardInterrupt(), 3, "Interrupted", "interrupted before the end"),
    (StoreError("a: cannot be read"), 3, "StoreError", "a: cannot be read"),
    (GateClosed("closed\x1b[0m", []), 1, "GateClosed", "closed"),
]


@pytest.mark.parametrize(("error", "code", "name", "says"), FATES, ids=[repr(fate[0])[:40] for fate in FATES])
def test_however_a_command_ends_it_is_never_taken_for_a_closed_gate(
    monkeypatch: pytest.MonkeyPatch, call: Command, error: BaseException, code: int, name: str, says: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("toolkit.cli.contract.workspace_of", fail)
    told = call("contract", "list")
    assert (told.code, told.out) == (code, "")
    assert told.err.splitlines()[-1].startswith("tokenproof: ")
    assert says in told.err.splitlines()[-1]
    assert ("Traceback" in told.err) is (name == "InternalError")
    assert is_harmless(told.err)
    told = call("contract", "list", "--format", "json")
    found = error_of(told)
    assert (told.code, found["error"]) == (code, name)
    assert says in found["message"]
    assert ("Traceback" in told.err) is (name == "InternalError")


def test_an_exit_that_was_asked_for_is_kept(monkeypatch: pytest.MonkeyPatch, call: Command) -> None:
    def leave(*_: object) -> None:
        sys.exit(7)

    monkeypatch.setattr("toolkit.cli.contract.workspace_of", leave)
    assert call("contract", "list").code == 7


def test_streams_are_given_back(call: Command) -> None:
    before = sys.stdout, sys.stderr
    call("--version")
    assert (sys.stdout, sys.stderr) == before


# --- streams -------------------------------------------------------------------------------------


def shell(script: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A line of sh, in which $T is the console script."""
    values = {**os.environ, "T": str(SCRIPT), **environment}
    return subprocess.run(["sh", "-c", script], capture_output=True, check=False, env=values)


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    ("redirection", "code", "says"),
    [
        (">&-", 3, b"standard output: expected a stream, found it closed; nothing was done"),
        (">/dev/full", 3, b"standard output: cannot be written: No space left on device"),
        ("2>&-", 0, b""),
        ("2>/dev/full", 0, b""),
        (">&- 2>&-", 3, b""),
        (">/dev/full 2>/dev/full", 3, b""),
        ("<&-", 0, b""),
    ],
)
def test_streams_that_are_closed_or_full(redirection: str, code: int, says: bytes, form: str) -> None:
    done = shell(f'"$T" contract list --format {form} {redirection}')
    assert (done.returncode, done.stderr.strip().removeprefix(b"tokenproof: ")) == (code, says)


@pytest.mark.parametrize("words", ["--help", "contract list", "contract list --format json", "bogus --format json"])
def test_a_full_disk_behind_standard_output(words: str) -> None:
    done = shell(f'"$T" {words} >/dev/full')
    assert done.returncode == (2 if "bogus" in words else 3)
    assert done.stderr.count(b"\n") == 1
    assert b"Traceback" not in done.stderr


def with_reader_gone(*words: str, stream: str) -> tuple[int, bytes]:
    """Run the script with one of its streams a pipe whose reader has gone; exit code and what the other one got."""
    read, write = os.pipe()
    os.close(read)
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | {stream: write}
    with subprocess.Popen([str(SCRIPT), *words], **streams) as process:
        os.close(write)
        out, err = process.communicate()
    return process.returncode, (err if stream == "stdout" else out) or b""


@pytest.mark.parametrize("words", [["--help"], ["contract", "list"], ["contract", "list", "--format", "json"]])
def test_a_reader_that_went_away(words: list[str]) -> None:
    code, told = with_reader_gone(*words, stream="stdout")
    assert code == 3
    assert told == b"tokenproof: standard output: its reader went away before everything was written\n"


def test_nobody_reads_the_messages() -> None:
    code, out = with_reader_gone("contract", "list", "--format", "json", stream="stderr")
    assert code == 0
    assert json.loads(out)["contracts"]
    code, _ = with_reader_gone("bogus", stream="stderr")
    assert code == 2


def test_json_stays_json_in_any_encoding(root: Path) -> None:
    contracts = root / "contracts"
    contracts.mkdir()
    (contracts / "mine.toml").write_text(
        KIMI.replace('name = "kimi-k2.5"', 'name = "mine"').replace('title = "Kimi-K2.5"', 'title = "é月🙂"'),
        encoding="utf-8",
    )
    done = shell(f'"$T" contract list --root "{root}" --format json', PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    (mine,) = (c for c in json.loads(done.stdout.decode("ascii"))["contracts"] if c["name"] == "mine")
    assert mine["title"] == "é月🙂"
    assert shell(f'"$T" contract list --root "{root}"', PYTHONIOENCODING="ascii").returncode == 0


def test_a_disk_that_is_full_in_the_middle(root: Path, vocabulary: Vocabulary) -> None:
    file = write_lines(root / "batch.jsonl", [batch_line(vocabulary, i) for i in range(2)])
    done = shell(f'ulimit -f 0; "$T" import B3_numbers "{file}" --root "{root}" --format json 2>/dev/full | cat')
    error = json.loads(done.stdout)
    assert error["exit_code"] == 3
    assert "File too large" in error["message"]
    assert str(root) in error["message"]
    assert not (root / "datasets/B3_numbers/shards.json").exists()


# --- contracts -----------------------------------------------------------------------------------


def own_contract(root: Path, name: str, *changes: tuple[str, str]) -> Path:
    """A copy of Kimi's contract in contracts/, under its own name."""
    text = KIMI.replace('name = "kimi-k2.5"', f'name = "{name}"')
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path = root / "contracts" / f"{name}.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_own_contracts_are_listed_and_a_broken_one_hides_none(root: Path, run: Command) -> None:
    own_contract(root, "mine", ('title = "Kimi-K2.5"', 'title = "My\\u001b[31m Kimi"'))
    own_contract(root, "gpt-oss", ('default_mode = "thinking"', 'defaul_mode = "thinking"'))
    make_pipe(root / "contracts/pipe.toml")
    told = run("contract", "list", "--format", "json", root=root)
    assert told.code == 2
    found = {entry["name"]: entry for entry in json.loads(told.out)["contracts"]}
    assert list(found)[:3] == ["gpt-oss", "mine", "pipe"]
    assert {"kimi-k2-instruct", "kimi-k2.5"} < set(found)
    assert [found[name]["own"] for name in found] == [True, True, True, *[False] * (len(found) - 3)]
    assert found["gpt-oss"]["replaces_shipped"]
    assert "gpt-oss.toml: defaul_mode: unknown key; did you mean default_mode?" in found["gpt-oss"]["error"]
    assert "found a pipe" in found["pipe"]["error"]
    assert found["mine"]["modes"] == ["thinking", "instant"]
    assert found["mine"]["error"] is None
    text = run("contract", "list", root=root)
    assert text.code == 2
    assert is_harmless(text.out)
    for line in (
        "mine (own): My",
        "gpt-oss (own, in place of the shipped one): CANNOT BE READ:",
        "kimi-k2.5: Kimi-K2.5",
    ):
        assert line in text.out
    assert all(len(line) < 160 for line in text.out.splitlines() if "CANNOT BE READ" not in line)
    named = [len(found[name]["models"]) for name in found]
    assert f" and {max(named) - 2} more\n" in text.out
    (root / "contracts/gpt-oss.toml").unlink()
    (root / "contracts/pipe.toml").unlink()
    assert run("contract", "list", root=root).code == 0


def test_the_proof_is_short_and_says_more_if_asked(root: Path, run: Command) -> None:
    short = run("contract", "check", "kimi-k2.5", root=root)
    assert short.code == 0
    assert short.out.count("\n") < 17
    for group in ("thinking, 2 ids", "tool calls, 5 ids", "ends of an answer, 1 id ", "8 of 8 hold"):
        assert group in short.out
    long = run("contract", "check", "kimi-k2.5", "--verbose", root=root)
    assert long.code == 0
    assert long.out.count("✓ holds") == 109
    told = json.loads(run("contract", "check", "kimi-k2.5", "--format", "json", root=root).out)
    assert (told["holds"], len(told["lines"])) == (True, 109)
    assert [*told["engines"]] == ["rebuild", "audit", "referee"]
    assert len(set(told["engines"].values())) == 3  # nothing is its own witness
    for role, package in (("audit", "fastokens"), ("referee", "tiktoken")):
        assert told["engines"][role] == f"{package} {version(package)}"
    assert f"Engines: rebuild {told['engines']['rebuild']}, audit " in short.out


def test_a_claim_that_fails_stands_by_itself_in_the_short_proof(root: Path, run: Command) -> None:
    own_contract(root, "mine", ('"</think>" = 163607', '"</think>" = 163837'))
    told = run("contract", "check", "mine", root=root)
    assert told.code == 2
    assert "NOT PROVEN" in told.out
    assert "✗ FAILS  thinking, 2 ids" in told.out
    assert "163837" in told.out


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Path:
    """The files of Kimi-K2.5's vocabulary as they lie in its repository."""
    from toolkit.engines import rank_lines

    folder = tmp_path_factory.mktemp("official")
    (folder / "tiktoken.model").write_bytes(rank_lines(vocabulary.base))
    added = {str(token_id): {"content": spelling} for spelling, token_id in vocabulary.special.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}), encoding="utf-8")
    return folder


FROM = 'from = "splintr:kimi_k2"'


def test_an_own_contract_with_a_folder_below_the_workspace(root: Path, official: Path, run: Command) -> None:
    (root / "models").symlink_to(official)
    own_contract(root, "mine", (FROM, 'from = "folder:models"'))
    told = run("contract", "check", "mine", root=root)
    assert told.code == 0, told.err
    assert "PROVEN" in told.out


def a_file(name: str, content: str) -> Callable[[Path], None]:
    """A folder with this file beside what is given."""
    return lambda folder: (folder / name).write_text(content, encoding="utf-8") and None


VOCABULARIES = [
    # (what is wrong, what is in the folder, further changes of the contract, what the message says)
    ("missing folder", lambda f: f.rmdir(), [], "models: expected tiktoken.model with tokenizer_config.json, or"),
    ("empty folder", lambda f: None, [], "models: expected tiktoken.model with tokenizer_config.json, or"),
    ("ranks cut", a_file("tiktoken.model", "IQ==\n"), [], "tiktoken.model: line 1: expected base64 and a rank"),
    ("ranks alone", a_file("tiktoken.model", "IQ== 0\n"), [], "tokenizer_config.json: missing; it holds the ids of"),
    ("no tokenizer", a_file("tokenizer.json", "[]"), [], "expected a byte-level BPE tokenizer.json"),
    ("nested", a_file("tokenizer.json", "[" * 100_000), [], "expected a byte-level BPE tokenizer.json"),
    ("no model", a_file("tokenizer.json", '{"model": {"vocab": {}}}'), [], "no engine can use the vocabulary"),
]


@pytest.mark.parametrize(("fill", "changes", "says"), [v[1:] for v in VOCABULARIES], ids=[v[0] for v in VOCABULARIES])
def test_vocabularies_that_cannot_be_used(
    root: Path, run: Command, fill: Callable[[Path], None], changes: list[tuple[str, str]], says: str
) -> None:
    (root / "models").mkdir()
    fill(root / "models")
    own_contract(root, "mine", (FROM, 'from = "folder:models"'), *changes)
    told = run("contract", "check", "mine", root=root)
    assert (told.code, told.out) == (2, "")
    assert says in told.err


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('pattern = "splintr:KIMI_PATTERN"', 'pattern = "("'), "no engine can use the vocabulary and pattern"),
        (('pattern = "splintr:KIMI_PATTERN"', 'pattern = "splintr:X"'), "vocabulary.pattern: splintr has no X"),
        (("base_tokens = 163584", "base_tokens = 100"), "no engine can use the vocabulary and pattern"),
        ((FROM, 'from = "splintr:none"'), "splintr:none: Unknown pretrained model"),
        ((FROM, 'from = "kimi_k2"'), "vocabulary.from: expected splintr:NAME, folder:PATH or huggingface:NAME"),
        ((FROM, 'from = "folder:a\\u0000b"'), "expected tiktoken.model with tokenizer_config.json"),
    ],
)
def test_vocabularies_that_a_contract_describes_wrongly(
    root: Path, run: Command, change: tuple[str, str], says: str
) -> None:
    own_contract(root, "mine", change)
    told = run("contract", "check", "mine", root=root)
    assert (told.code, told.out) == (2, "")
    assert says in told.err


@pytest.mark.slow
def test_a_vocabulary_that_is_not_on_this_machine(root: Path) -> None:
    own_contract(root, "mine", (FROM, 'from = "huggingface:moonshotai/Kimi-K2.5"'))
    done = shell(f'"$T" contract check mine --root "{root}"', HF_HUB_OFFLINE="1", HF_HOME=str(root / "none"))
    assert done.returncode == 2
    last = done.stderr.decode().splitlines()[-1]
    assert last.startswith("tokenproof: contract mine: huggingface:moonshotai/Kimi-K2.5: ")


# --- the simulated server ------------------------------------------------------------------------


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_a_port_that_is_taken(root: Path, run: Command, taken_port: int) -> None:
    told = run("simulate", "--port", str(taken_port), "--format", "json", root=root)
    assert told.code in (2, 3)
    assert str(taken_port) in error_of(told)["message"]


def test_the_simulated_server_says_where_it_listens_and_ends_well(root: Path) -> None:
    words = [str(SCRIPT), "simulate", "--root", str(root), "--format", "json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline())
        assert (told["contract"], told["seed"]) == ("kimi-k2.5", 0)
        assert told["url"].startswith("http://127.0.0.1:")
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 0
