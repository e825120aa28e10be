"""`tokenproof import`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.app import Form, Format, Root, app, counting, print_json, printable, say
from toolkit.cli.places import contract_of, settings_of, vocabulary_of, workspace_of
from toolkit.errors import EXIT_INCOMPLETE, EXIT_PASSED

if TYPE_CHECKING:
    from toolkit.importing import ImportCounts
    from toolkit.store.workspace import Dataset

_DECIDED_BY = {
    "provider": "the reply names its provider",
    "url": "by the host of the URL",
    "option": "as --source says",
    "default": "nothing in the line says; --source NAME sets it",
}


@app.command("import")
def import_(
    name: Annotated[str, typer.Argument(help="Dataset to import into, its whole name; made if it does not exist.")],
    files: Annotated[
        list[Path],
        typer.Argument(
            help="JSON lines: OpenAI batch output, raw_responses.jsonl, recorded traffic, or rows made for a trainer "
            "(ids and a mask); these also as Parquet, Arrow or a folder of save_to_disk."
        ),
    ],
    root: Root = Path(),
    mode: Annotated[str | None, typer.Option(help="Mode of lines that state none.")] = None,
    model: Annotated[str | None, typer.Option(help="Model of lines that name none.")] = None,
    source: Annotated[
        str | None,
        typer.Option(help="Source of lines that name neither a provider nor OpenRouter's URL: sglang, vllm, …"),
    ] = None,
    contract_name: Annotated[str | None, typer.Option("--contract", help="Contract; else the configured one.")] = None,
    local_ids_are_engine: Annotated[
        bool,
        typer.Option(
            "--local-ids-are-engine",
            help="Ids of local lines came from the engine itself (lines with a cost, a gen- id, usage details or a "
            "provider never do).",
        ),
    ] = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Make rows anew that are there from the same lines, but with another mode, model, source, prompt or "
            "word about their ids, and let a new answer take the place of an imported one of the same id. Generated "
            "and rebuilt rows stay. Rows without their prompt are made anew in any case once prompts.jsonl has it.",
        ),
    ] = False,
    form: Format = Form.TEXT,
) -> None:
    """Import answers that you already have. Exit 3: lines failed, and not one of all has a row; a warning where some
    fail.
    """
    from toolkit.importing import ImportOptions, check_options, count_lines, import_files

    workspace = workspace_of(root)
    dataset = workspace.dataset_named(name)
    contract = contract_of(workspace, settings_of(workspace).dataset(dataset.name), contract_name)
    options = ImportOptions(
        mode=mode, model=model, source=source, local_ids_are_engine=local_ids_are_engine, replace=replace
    )
    check_options(options, contract)
    lines = count_lines(files)
    vocabulary = vocabulary_of(contract)
    with counting(f"import into {dataset.name}", lines) as advance:
        counts = import_files(dataset, files, contract, vocabulary, options, advance)
    if form is Form.JSON:
        print_json({"dataset": dataset.name, **counts.as_json()})
    else:
        for line in summary_of(dataset, counts):
            say(line)
    if counts.failures:
        told = f"{dataset.name}: warning: {counts.failures:,} of {counts.lines:,} lines gave no row"
        print(printable(f"{told}; see {dataset.failures}"), file=sys.stderr)
    raise typer.Exit(exit_code_of(counts))


def exit_code_of(counts: ImportCounts) -> int:
    """0, also where some lines failed; 3 where lines failed and not one of all the lines has a row."""
    with_row = counts.rows + counts.replaced + counts.already_there
    return EXIT_INCOMPLETE if counts.failures and not with_row else EXIT_PASSED


def summary_of(dataset: Dataset, counts: ImportCounts) -> Iterator[str]:
    """What became of the lines, in words: sums first, then what was decided for them, then what is to be done."""
    from toolkit.report.text import quantity

    replaced = f"{counts.replaced:,} replaced + " if counts.replaced else ""
    yield (
        f"{dataset.name}: {counts.lines:,} lines = {counts.rows:,} rows + {replaced}{counts.failures:,} failures + "
        f"{counts.already_there:,} already there"
    )
    if counts.by_reason:
        yield f"  failures: {_tally(counts.by_reason)}"
    if counts.statuses:
        yield f"  rows: {_tally(counts.statuses)}"
    for source, decided_by in counts.sources.items():
        for what, count in decided_by.most_common():
            yield f"  source {source}: {quantity(count, 'row')} ({_DECIDED_BY[what]})"
    for what, values in counts.assumed.items():
        yield f"  assumed, as the line states none: {what} " + ", ".join(
            f"{v} ({n:,})" for v, n in values.most_common()
        )
    yield from _warnings(dataset, counts)
    if counts.other_answers:
        lines = (
            "1 line answers a prompt that has"
            if counts.other_answers == 1
            else (f"{counts.other_answers:,} lines answer prompts that have")
        )
        yield f"  {lines} another answer: --replace takes the new one{'s' * (counts.other_answers != 1)}"
    if counts.failures:
        yield f"  each failure with its line and reason: {dataset.failures}"


def _warnings(dataset: Dataset, counts: ImportCounts) -> Iterator[str]:
    yield from _source_warnings(counts)
    if counts.differently:
        yield (
            f"  of the rows already there, some were made with other options ({_tally(counts.differently)}); they stay "
            "as they were; --replace makes them anew"
        )
    if counts.prompt_unknown:
        yield (
            f"  warning: the prompt of {counts.prompt_unknown:,} rows is not known, and merge writes no row without "
            f"prompt ids: put the prompts, with the same ids, into {dataset.prompts} and import again"
        )
    others = {why: n for why, n in counts.without_prompt_ids.items() if why != "prompt_unknown"}
    if others:
        yield f"  warning: rows without prompt ids, which merge does not write: {_tally(others)}"


def _source_warnings(counts: ImportCounts) -> Iterator[str]:
    from toolkit.records import Source

    known = sorted(map(str, Source))
    odd = {source: decided.total() for source, decided in counts.sources.items() if source not in known}
    if odd:
        yield (
            f"  warning: the shipped suites take rows of {', '.join(known)} only, and refuse {_tally(odd)}: where one "
            "of the three is meant, import again with --source NAME --replace"
        )


def _tally(counted: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {what}" for what, n in sorted(counted.items(), key=lambda item: (-item[1], item[0])))
