"""`tokenproof merge`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.app import Form, Format, Root, app, counting, print_json, printable, say
from toolkit.cli.ci import show_refusal_on_github
from toolkit.cli.mix_options import mix_of, pairs
from toolkit.cli.places import contract_of, opened, settings_of, suite_name, suite_path, vocabulary_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from toolkit.config import DatasetSettings, Settings
    from toolkit.errors import GateClosed
    from toolkit.gate import OpenGate
    from toolkit.mix import MergeSettings
    from toolkit.store.workspace import Dataset, Workspace


class Loss(StrEnum):
    """Whether ids bear loss."""

    SUPERVISED = "supervised"
    MASKED = "masked"


class Fate(StrEnum):
    """What becomes of rows."""

    DROP = "drop"
    KEEP = "keep"


@app.command()
def merge(
    names: Annotated[list[str], typer.Argument(help="Datasets; each must have passed its audit.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the train set.")],
    root: Root = Path(),
    seed: Annotated[
        int | None, typer.Option(help="Shuffle: rows stand in the order of sha256(seed + row_key).", show_default="0")
    ] = None,
    weight: Annotated[
        list[str] | None, typer.Option(help="NAME=NUMBER: part of the mix of a dataset or source; once for each.")
    ] = None,
    limit: Annotated[
        list[str] | None, typer.Option(help="NAME=ROWS: at most so many rows of a dataset or source.")
    ] = None,
    max_rows: Annotated[int | None, typer.Option(min=0, help="At most so many rows in all.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=0, help="At most so many tokens in all.")] = None,
    max_supervised_tokens: Annotated[int | None, typer.Option(min=0, help="At most so many that bear loss.")] = None,
    validation_percent: Annotated[
        float | None, typer.Option(min=0, max=50, help="Percent of the prompts that go to validation/.")
    ] = None,
    duplicates: Annotated[
        Fate | None, typer.Option(help="Rows that an earlier dataset has too: drop (default) or keep.")
    ] = None,
    contradicted_prompts: Annotated[
        Fate | None, typer.Option(help="Rows whose prompt's reported length contradicts ours: drop (default) or keep.")
    ] = None,
    terminal: Annotated[Loss | None, typer.Option(help="The id that ends an answer: supervised (default).")] = None,
    reasoning: Annotated[Loss | None, typer.Option(help="Ids before the answer: supervised (default).")] = None,
    window: Annotated[int | None, typer.Option(min=1, help="Ids of a row that the trainer sees.")] = None,
    adjacent_pair: Annotated[
        bool, typer.Option("--adjacent-pair", help="Leave out rows without two supervised ids side by side (DFlash).")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a train set there that was made of other datasets.")
    ] = False,
    form: Format = Form.TEXT,
) -> None:
    """Merge audited datasets into one shuffled train set. Refuses whatever was not proved as it lies there now.

    Options come before the table merge of tokenproof.toml; the manifest holds what counted.
    """
    given = {
        "seed": seed,
        "max_rows": max_rows,
        "max_tokens": max_tokens,
        "max_supervised_tokens": max_supervised_tokens,
        "validation_percent": validation_percent,
        "duplicates": duplicates,
        "contradicted_prompts": contradicted_prompts,
    }
    masks = {"terminal": terminal, "reasoning": reasoning, "window": window, "adjacent_pair": adjacent_pair or None}
    with opened(root, names) as workspace:
        settings = settings_of(workspace)
        datasets = list(dict.fromkeys(workspace.find_dataset(name) for name in names))
        mix = mix_of(settings.merge, given, masks, pairs("--weight", weight), pairs("--limit", limit), datasets)
        _merge(workspace, datasets, settings, mix, output, replace, form)


def _merge(
    workspace: Workspace,
    datasets: Sequence[Dataset],
    settings: Settings,
    mix: MergeSettings,
    output: Path,
    replace: bool,
    form: Form,
) -> None:
    """Open all gates, merge, and tell what came of it.

    Raises:
        ConfigError: the train set cannot lie there.
        GateClosed: a dataset is not proved as it lies there.
    """
    from toolkit.merge import merge as run
    from toolkit.merge import render_manifest
    from toolkit.train_folder import check_replaceable, check_same_datasets
    from toolkit.verifying import SUITE_NAME

    _check_local(output)
    check_replaceable(output)
    if not replace:
        check_same_datasets(output, {dataset.name for dataset in datasets})
    contract = contract_of(workspace, settings.dataset(datasets[0].name))
    gates, contradicted = _open_all(workspace, datasets, settings, form)
    with counting("merge", 2 * sum(gate.live.rows for gate in gates)) as advance:
        manifest = run(
            gates,
            output,
            contract=contract,
            suite=suite_path(workspace, SUITE_NAME),
            mix=mix,
            contradicted=contradicted,
            replace=replace,
            advance=advance,
        )
    if form is Form.JSON:
        print_json(manifest)
        return
    for line in render_manifest(manifest):
        say(line)
    say(f"train set: {output}")


def _check_local(output: Path) -> None:
    """Refuse what would become a folder called `s3:`.

    Raises:
        ConfigError: the train set is to lie in object storage.
    """
    from toolkit.errors import ConfigError
    from toolkit.store.remote import is_remote

    if is_remote(output):
        raise ConfigError(f"--output {str(output)[:200]}: expected a local folder; copy the train set when it is whole")


def _open_all(
    workspace: Workspace, datasets: Sequence[Dataset], settings: Settings, form: Form
) -> tuple[list[OpenGate], dict[str, pa.Table]]:
    """All gates, and the rows whose prompt evidence is contradicted, by dataset."""
    from toolkit.errors import GateClosed

    gates, closed = [], []
    contradicted: dict[str, pa.Table] = {}
    with counting("prove", sum(map(_rows_of, datasets))) as advance:
        for dataset in datasets:
            try:
                found = _open(workspace, dataset, settings.dataset(dataset.name), advance, contradicted)
            except GateClosed as error:
                show_refusal_on_github(error)
                closed.append(error)
            else:
                gates.append(found)
    if closed:
        _refuse(closed, form)
    return gates, contradicted


def _rows_of(dataset: Dataset) -> int:
    """Rows that shards.json lists; 0 where it cannot be read, which the gate will say."""
    from toolkit.errors import StoreError
    from toolkit.store.shards import read_live

    try:
        return read_live(dataset).rows
    except StoreError:
        return 0


def _open(
    workspace: Workspace,
    dataset: Dataset,
    settings: DatasetSettings,
    advance: Callable[[int], None],
    contradicted: dict[str, pa.Table],
) -> OpenGate:
    from toolkit.accounting import accounting
    from toolkit.audit.recheck import Rechecker
    from toolkit.gate import open_gate

    contract = contract_of(workspace, settings)
    suites = [(suite_name(name), suite_path(workspace, name)) for name in settings.suites or (contract.name,)]
    recheck = Rechecker(
        dataset=dataset,
        contract=contract,
        suites=[path for _, path in suites],
        allowed_providers=settings.providers,
        load_vocabulary=lambda: vocabulary_of(contract),
        account=lambda: accounting(dataset, contract, settings),
        tell=lambda sentence: print(printable(f"{dataset.name}: {sentence}"), file=sys.stderr),
        advance=advance,
        contradicted=lambda rows: contradicted.update({dataset.name: rows}),
    )
    return open_gate(dataset, contract, suites, allowed_providers=settings.providers, recheck=recheck)


def _refuse(closed: Sequence[GateClosed], form: Form) -> None:
    """Name every reason of every dataset, for machines by dataset, and end.

    Raises:
        GateClosed: of all of them, for people.
        typer.Exit: where machines were told.
    """
    from toolkit.errors import EXIT_GATE_CLOSED, GateClosed

    reasons = [reason for error in closed for reason in error.reasons]
    message = "\n".join(str(error) for error in closed)
    if form is not Form.JSON:
        raise GateClosed(message, reasons)
    datasets = [{"dataset": e.dataset, "reasons": e.reasons, "next": e.commands} for e in closed]
    print_json(
        {
            "error": "GateClosed",
            "exit_code": EXIT_GATE_CLOSED,
            "message": printable(message),
            "reasons": reasons,
            "datasets": datasets,
        }
    )
    raise typer.Exit(EXIT_GATE_CLOSED)
