"""`tokenproof verify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.app import Form, Format, Root, app, counting, print_json, say
from toolkit.cli.places import contract_named, suite_path, workspace_of

if TYPE_CHECKING:
    from toolkit.contract import Contract
    from toolkit.manifest import Manifest
    from toolkit.store.workspace import Workspace


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="A train set, as merge wrote it.")],
    root: Root = Path(),
    datasets: Annotated[
        bool,
        typer.Option("--datasets", help="Demand that all datasets are at hand; else those that are, are looked at."),
    ] = False,
    form: Format = Form.TEXT,
) -> None:
    """Prove a train set: every byte, every count, every mask, and that what it was made of still stands.

    Exit code 0: all of it holds. 1: something does not; the reasons are named. 3: it cannot be found out.
    """
    from toolkit.manifest import read_manifest
    from toolkit.origins import at_hand, check_origins
    from toolkit.train_suite import read_train_suite
    from toolkit.verifying import SUITE_NAME, examine, told

    workspace = workspace_of(root)
    manifest = read_manifest(folder)
    contract = _contract_of(workspace, manifest)
    suite = read_train_suite(suite_path(workspace, SUITE_NAME))
    with counting("verify", manifest.totals.written) as advance:
        found = examine(folder, manifest, contract, suite, advance)
    there, absent = at_hand(workspace, manifest)
    if datasets and absent:
        _missing(workspace, absent)
    origins = check_origins(workspace, manifest, there)
    reasons = [*found.faults, *(told(result) for result in found.failed), *origins]
    notes = [f"warning: {told(result)}" for result in found.warnings]
    if manifest.proof is None or manifest.proof.suite.sha256 != suite.sha256:
        notes.append(f"suite {suite.name} is not the one of the merge; the rows were held against the one at hand")
    if absent:
        notes.append(f"not at hand, so not looked at: {', '.join(absent)}")
    _tell(folder, manifest, there, reasons, notes, form)


def _contract_of(workspace: Workspace, manifest: Manifest) -> Contract:
    """The contract that a train set names, as it is at hand.

    Raises:
        StoreError: it is another one than at the merge, so masks cannot be judged.
    """
    from toolkit.errors import StoreError

    contract = contract_named(workspace, manifest.contract)
    if contract.sha256 != manifest.contract_sha256:
        raise StoreError(
            f"contract {contract.name}: expected the one of the merge, sha256 {manifest.contract_sha256[:16]}…, found "
            f"{contract.sha256[:16]}…; put it into {workspace.contracts}"
        )
    return contract


def _missing(workspace: Workspace, absent: list[str]) -> None:
    from toolkit.errors import StoreError

    raise StoreError(f"{workspace.datasets}: expected all datasets of the train set, missing: {', '.join(absent)}")


def _tell(folder: Path, manifest: Manifest, there: list[str], reasons: list[str], notes: list[str], form: Form) -> None:
    from toolkit.errors import EXIT_GATE_CLOSED
    from toolkit.report.text import quantity

    if form is Form.JSON:
        print_json(
            {
                "train_set": str(folder),
                "verified": not reasons,
                "rows": manifest.totals.written,
                "datasets": there,
                "reasons": reasons,
                "notes": notes,
            }
        )
    else:
        for note in notes:
            say(note)
        for reason in reasons:
            say(f"✗ {reason}")
        files = quantity(len(manifest.outputs) + len(manifest.validation_outputs), "file")
        against = f", against {', '.join(there)}" if there else ""
        what = f"{quantity(manifest.totals.written, 'row')} in {files}{against}"
        if reasons:
            say(f"NOT VERIFIED: {folder}: {what}: {quantity(len(reasons), 'reason')}")
        else:
            say(f"VERIFIED: {folder}: {what}")
    if reasons:
        raise typer.Exit(EXIT_GATE_CLOSED)
