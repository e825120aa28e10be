"""Every command in the documentation is run, and does what the page says; links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

from .pages import DOCS, SHELLS, blocks_of, printed, steps_of
from .workspaces import MADE, Shell, Workspaces

PAGES = sorted([ROOT / "README.md", *DOCS.glob("*.md")])
NAMES = {page: page.relative_to(ROOT).as_posix() for page in PAGES}

ELSEWHERE = {
    "README.md": "tests/flow/test_readme.py runs its commands, in their order",
}
"""Pages whose commands another test runs."""

NOT_RUN = {
    ("docs/quick-start.md", "pip install ."): "installs into the reader's environment",
    ("docs/faq.md", "tokenproof generate B3"): "asks a paid API",
    ("docs/contracts.md", "tokenproof contract check phi-4"): "needs the vocabulary of that model",
    ("docs/generation.md", "tokenproof preflight B3"): "asks a paid API",
    ("docs/generation.md", "tokenproof generate B3 --dollars 20"): "asks a paid API",
    ("docs/generation.md", "tokenproof status B3 --watch"): "runs until it is interrupted",
    ("docs/simulator.md", "tokenproof simulate --scenario chaos --seed 7 --ledger ledger.jsonl --url-file url"): (
        "serves until it is interrupted; tests/simulate/test_command.py starts it"
    ),
    ("docs/at-scale.md", "audit B3 --engine ray --ray-address HOST:6379"): "tests/audit/test_on_ray.py has a cluster",
    ("docs/at-scale.md", "audit B3 --root s3://bucket/folder"): "tests/flow/test_remote.py has object storage",
    ("docs/at-scale.md", "tokenproof merge B3 -o train --root s3://bucket/folder"): "tests/flow/test_remote.py again",
    ("docs/export.md", "tokenproof export train/B3 --to speculators --max-length 8192"): (
        "tests/trainers reads what it writes with speculators itself"
    ),
    ("docs/export.md", "tokenproof import B7 specforge.jsonl --source vllm"): "tests/export/test_prepared_import.py",
    ("docs/export.md", "tokenproof import B7 prepared_folder/ --source vllm"): "tests/export/test_prepared_import.py",
    ("docs/export.md", "audit B7"): "tests/export/test_prepared_import.py",
    (
        "docs/merge.md",
        "tokenproof merge B3 B4 -o train --validation-percent 5 --weight B3=2 --weight B4=1",
    ): "tests/merge/test_mixed.py merges two datasets by weights",
    ("docs/merge.md", "tokenproof verify train"): "tests/merge/test_verify.py",
    ("docs/merge.md", "tokenproof verify train [--root WORKSPACE] [--datasets] [--format json]"): "a form, no command",
}
"""Commands that no test can run, and why."""

RUN = [page for page in PAGES if NAMES[page] not in ELSEWHERE and any(block.verb for block in blocks_of(page))]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=lambda page: NAMES[page])
def test_commands_do_what_the_page_says(page: Path, tmp_path: Path, workspaces: Workspaces, shell: Shell) -> None:
    made: dict[str, Path] = {}
    for block in blocks_of(page):
        if not block.verb:
            continue
        place = f"{NAMES[page]}, line {block.line}"
        if block.workspace not in made:
            made[block.workspace] = workspaces.copy(block.workspace, tmp_path / block.workspace)
        here = made[block.workspace]
        if block.verb == "write":
            path = here / block.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
            continue
        for step in steps_of(block):
            done = shell(step.command, here)
            assert done.code == step.exit_code, f"{place}: {step.command}\n{done.output}"
            assert printed(step.shows, done.output) == [], f"{place}: {step.command}\n{done.output}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: NAMES[page])
def test_no_command_stands_there_that_nobody_runs(page: Path) -> None:
    name = NAMES[page]
    if name in ELSEWHERE:
        return
    unmarked = [command for command in unmarked_of(page) if (name, command) not in NOT_RUN]
    assert unmarked == []


def unmarked_of(page: Path) -> list[str]:
    """Commands of a page that no marker has run: in fenced blocks, and ours in indented ones."""
    steps = [
        step.command
        for block in blocks_of(page)
        if block.language in SHELLS and not block.verb
        for step in steps_of(block)
    ]
    steps += re.findall(r"^    (?:\$ )?((?:tokenproof|audit) .*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [step.partition("  ")[0].strip() for step in steps]


def test_what_is_not_run_is_still_there() -> None:
    shown = {(NAMES[page], command) for page in PAGES for command in unmarked_of(page)}
    assert set(NOT_RUN) - shown == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: NAMES[page])
def test_workspaces_and_links_exist(page: Path) -> None:
    assert {block.workspace for block in blocks_of(page) if block.verb} <= set(MADE)
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{NAMES[page]}: {target}"


def test_the_index_leads_to_every_page() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    pages = [page for page in DOCS.glob("*.md") if page.name != "index.md"]
    assert [page.name for page in pages if f"({page.name})" not in index] == []


def test_pages_name_no_option_that_does_not_exist() -> None:
    known = _options()
    wrong = [
        f"{NAMES[page]}: {option}"
        for page in PAGES
        for line in page.read_text(encoding="utf-8").splitlines()
        for command in re.findall(r"(?:tokenproof \w+|(?<![\w/])audit)((?: [\w./$\"'{}:=@<>,-]+)*)", line)
        for option in re.findall(r"(?<!\S)--[a-z][a-z-]+", command)
        if option not in known
    ]
    assert wrong == []


def _options() -> set[str]:
    """Every option of every command."""
    import typer

    from toolkit.cli.app import app
    from toolkit.cli.main import COMMANDS

    assert COMMANDS
    found = {"--help"}
    waiting = [typer.main.get_command(app)]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        for parameter in command.params:
            found |= set(parameter.opts) | set(parameter.secondary_opts)
    return found
