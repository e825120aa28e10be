"""`tokenproof report`: the reports of the last audit once more, from its verdict, its facts and the shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from toolkit.cli.app import DatasetName, Form, Format, Root, app, print_json, say
from toolkit.cli.places import contract_of, lies_at, opened, settings_of, vocabulary_of
from toolkit.errors import EXIT_PASSED

if TYPE_CHECKING:
    from toolkit.contract import Contract
    from toolkit.records import Verdict
    from toolkit.store.workspace import Dataset
    from toolkit.vocabulary import Vocabulary


@app.command()
def report(name: DatasetName, root: Root = Path(), form: Format = Form.TEXT) -> None:
    """Write the reports of the last audit again, without auditing. Exit 0: they are written, whatever they say."""
    from toolkit.store.remote import Use
    from toolkit.store.verdicts import REPORT_NAMES, read_verdict

    with opened(root, [name], use=Use.REPORT) as workspace:
        dataset = workspace.find_dataset(name)
        verdict = read_verdict(dataset.verdict)
        contract = contract_of(workspace, settings_of(workspace).dataset(dataset.name))
        left_off = tuple(write_reports(dataset, verdict, contract, lambda: vocabulary_of(contract)))
        paths = [lies_at(workspace, dataset.reports / file) for file in REPORT_NAMES]
    if form is Form.JSON:
        print_json({"dataset": dataset.name, "reports": paths, "left_off": left_off, "passed": verdict.passed})
    else:
        for sentence in left_off:
            say(f"left off: {sentence}")
        say(f"written: {', '.join(paths)}")
    raise typer.Exit(EXIT_PASSED)


def write_reports(
    dataset: Dataset, verdict: Verdict, contract: Contract, load_vocabulary: Callable[[], Vocabulary]
) -> Iterator[str]:
    """Write index.html, junit.xml and summary.md; what the page has to leave off, a sentence each.

    Args:
        dataset: Whose reports are written; quarantine.parquet and facts lie there.
        verdict: What they tell of.
        contract: The dataset's.
        load_vocabulary: Called where failing rows are shown.

    Raises:
        StoreError: one of them cannot be written.
    """
    from toolkit.inspection.inspecting import inspect
    from toolkit.report.html import render_html
    from toolkit.report.junit import render_junit
    from toolkit.report.summary import render_summary
    from toolkit.store.files import write_atomic
    from toolkit.store.previous import read_previous
    from toolkit.store.verdicts import REPORT_NAMES

    inspection = inspect(dataset, verdict, contract, load_vocabulary)
    page = render_html(verdict, inspection, read_previous(dataset))
    for name, content in zip(REPORT_NAMES, (page, render_junit(verdict), render_summary(verdict)), strict=True):
        write_atomic(dataset.reports / name, content.encode())
    return iter(inspection.left_off)
