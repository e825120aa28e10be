"""`tokenproof contract list` and `contract check`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolkit.cli.app import Form, Format, Root, app, print_json, say, terminal_width, wants_colour
from toolkit.cli.places import contract_named, workspace_of
from toolkit.errors import EXIT_USAGE, ContractError

if TYPE_CHECKING:
    from toolkit.contract import Contract
    from toolkit.store.workspace import Workspace
    from toolkit.vocabulary import ProofLine

contract_app = typer.Typer(no_args_is_help=True, help="What a complete output of one model looks like in ids.")
app.add_typer(contract_app, name="contract")

Shown = tuple[str, str, str, bool]
"""A line of a proof as it is shown: what, expected, found, whether it holds."""

_MODELS_NAMED = 2
"""Model names of a contract that its line shows; --format json has all of them."""


# --- list ---------------------------------------------------------------------------------------


@contract_app.command("list")
def contract_list(root: Root = Path(), form: Format = Form.TEXT) -> None:
    """Name the contracts of this folder and those that come with the tool, the first models of each; --format json
    names all. Exit 2: one of them cannot be read.
    """
    found = list(listed_contracts(workspace_of(root)))
    if form is Form.JSON:
        print_json({"contracts": found})
    else:
        for entry in found:
            say(line_of(entry))
    if any(entry["error"] is not None for entry in found):
        raise typer.Exit(EXIT_USAGE)


def listed_contracts(workspace: Workspace) -> Iterator[dict[str, Any]]:
    """Every contract by name, a workspace's own first; what is wrong with a broken one is in its `error`."""
    from toolkit.contract import own_contracts, shipped_contracts

    shipped = shipped_contracts()
    own = own_contracts(workspace.contracts)
    for name in dict.fromkeys([*own, *shipped]):
        entry: dict[str, Any] = {
            "name": name,
            "own": name in own,
            "replaces_shipped": name in own and name in shipped,
            "title": None,
            "modes": [],
            "models": [],
            "path": None,
            "sha256": None,
            "error": None,
        }
        try:
            contract = contract_named(workspace, name)
        except ContractError as error:
            entry["error"] = str(error)
        else:
            entry |= {"title": contract.title, "modes": list(contract.modes), "models": list(contract.models)}
            entry |= {"path": contract.path, "sha256": contract.sha256}
        yield entry


def line_of(entry: dict[str, Any]) -> str:
    """One contract for people."""
    mark = " (own)" if entry["own"] else ""
    if entry["replaces_shipped"]:
        mark = " (own, in place of the shipped one)"
    if entry["error"] is not None:
        return f"{entry['name']}{mark}: CANNOT BE READ: {entry['error']}"
    models, more = entry["models"][:_MODELS_NAMED], len(entry["models"]) - _MODELS_NAMED
    named = ", ".join(models) + (f" and {more} more" if more > 0 else "")
    return f"{entry['name']}{mark}: {entry['title']}; modes {', '.join(entry['modes'])}; models {named}"


# --- check --------------------------------------------------------------------------------------


@contract_app.command("check")
def contract_check(
    name: Annotated[str, typer.Argument(help="Name of a contract, or path of its .toml file.")],
    root: Root = Path(),
    vocabulary: Annotated[
        str | None, typer.Option(help="Another source of the vocabulary: splintr:NAME, folder:PATH, huggingface:NAME.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print every claim, not a line a group.")] = False,
    form: Format = Form.TEXT,
) -> None:
    """Prove a contract and its vocabulary against each other, and print the proof and which engines encode."""
    from toolkit.report.console import render_proof
    from toolkit.vocabulary import proof_of

    contract = contract_named(workspace_of(root), name)
    proof = proof_of(contract, vocabulary)
    lines, engines = proof.lines, proof.engines
    if form is Form.JSON:
        told = {"contract": contract.name, "sha256": contract.sha256, "holds": proof.holds}
        print_json({**told, "engines": engines, "lines": lines})
    else:
        shown = [in_full(line) for line in lines] if verbose else list(summary_of(contract, lines))
        title = f"contract {contract.name}, sha256 {contract.sha256}"
        sys.stdout.write(render_proof(title, shown, colour=wants_colour(), width=terminal_width()))
        if not verbose:
            say(f"\n{len(lines):,} claims in {len(shown):,} lines; --verbose prints each")
        say("Engines: " + ", ".join(f"{role} {engine}" for role, engine in engines.items()))
    if not proof.holds:
        raise typer.Exit(EXIT_USAGE)


def in_full(line: ProofLine) -> Shown:
    """One claim."""
    return line.what, line.expected, line.found, line.holds


def summary_of(contract: Contract, lines: Sequence[ProofLine]) -> Iterator[Shown]:
    """A line for each group of special spellings and one for the texts; a claim that fails stands by itself too."""
    yield from (in_full(line) for line in lines if line.about is None)
    for title, spellings in groups_of(contract):
        count = f"{len(spellings)} id{'s' * (len(spellings) != 1)}"
        yield from _grouped(f"{title}, {count}", [line for line in lines if line.about in spellings])
    texts = [line for line in lines if line.about is not None and line.about not in contract.special]
    yield from _grouped(f"engines agree on {len({line.about for line in texts})} texts", texts)


def groups_of(contract: Contract) -> Iterator[tuple[str, list[str]]]:
    """The special spellings by what they are for; each stands in one group, in the order of the file."""
    think = [] if contract.think is None else [contract.think.begin, contract.think.end]
    groups = (
        ("ends of an answer", contract.terminal_ids),
        ("thinking", frozenset(contract.special[spelling] for spelling in think)),
        ("tool calls", contract.tool_ids),
        ("other markers", frozenset(contract.special[spelling] for spelling in contract.markers)),
        ("other special ids", frozenset(contract.special.values())),
    )
    told: set[int] = set()
    for title, ids in groups:
        spellings = [spelling for spelling, token_id in contract.special.items() if token_id in ids - told]
        told |= ids
        if spellings:
            yield title, spellings


def _grouped(title: str, lines: Sequence[ProofLine]) -> Iterator[Shown]:
    held = sum(line.holds for line in lines)
    yield title, f"{len(lines)} claims", f"{held} hold", held == len(lines) > 0
    yield from (in_full(line) for line in lines if not line.holds)
