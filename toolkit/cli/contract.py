"""`tokenproof contract list` and `contract check`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli.app import Form, Format, Root, app, is_terminal, print_json, say, terminal_width
from toolkit.cli.places import workspace_of

contract_app = typer.Typer(no_args_is_help=True, help="What a complete output of one model looks like in ids.")
app.add_typer(contract_app, name="contract")


@contract_app.command("list")
def contract_list() -> None:
    """Name the contracts that come with the tool."""
    from toolkit.contract import read_contract, shipped_contracts

    for name in shipped_contracts():
        contract = read_contract(name)
        say(f"{name}: {contract.title}; modes {', '.join(contract.modes)}; models {', '.join(contract.models)}")


@contract_app.command("check")
def contract_check(
    name: Annotated[str, typer.Argument(help="Name of a contract, or path of its .toml file.")],
    root: Root = Path(),
    vocabulary: Annotated[
        str | None, typer.Option(help="Another source of the vocabulary: splintr:NAME, folder:PATH, huggingface:NAME.")
    ] = None,
    form: Format = Form.TEXT,
) -> None:
    """Prove a contract and its vocabulary against each other, and print the proof."""
    from toolkit.contract import read_contract
    from toolkit.report.console import render_proof
    from toolkit.vocabulary import proof_of

    contract = read_contract(name, folder=workspace_of(root).contracts)
    lines = list(proof_of(contract, vocabulary))
    holds = all(line.holds for line in lines)
    if form is Form.JSON:
        print_json({"contract": contract.name, "sha256": contract.sha256, "holds": holds, "lines": lines})
    else:
        title = f"contract {contract.name}, sha256 {contract.sha256}"
        shown = [(line.what, line.expected, line.found, line.holds) for line in lines]
        sys.stdout.write(render_proof(title, shown, colour=is_terminal(sys.stdout), width=terminal_width()))
    if not holds:
        from toolkit.errors import EXIT_USAGE

        raise typer.Exit(EXIT_USAGE)
