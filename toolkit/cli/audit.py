"""`tokenproof audit`, and `audit` for short."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.app import (
    Form,
    Format,
    Root,
    app,
    counting,
    print_json,
    printable,
    terminal_width,
    wants_colour,
    write_text,
)
from toolkit.cli.ci import Audited, FailOn, code_with_warnings, show_on_github, show_problem_on_github, tell_all, worst
from toolkit.cli.gx_files import GxDocs, GxFiles, GxJson
from toolkit.cli.places import contract_of, lies_at, opened, settings_of, suites_of, vocabulary_of
from toolkit.cli.report import write_reports
from toolkit.errors import (
    EXIT_GATE_CLOSED,
    EXIT_INCOMPLETE,
    EXIT_PASSED,
    ConfigError,
    TokenproofError,
    UsageError,
)

if TYPE_CHECKING:
    from toolkit.audit.spread import Executor
    from toolkit.records import Verdict
    from toolkit.store.workspace import Dataset, Workspace


class Engine(StrEnum):
    """What measures shards."""

    LOCAL = "local"
    RAY = "ray"


@dataclass(frozen=True, slots=True)
class _How:
    """How audits are made: with which suites, what measures (None: this process), and what Great Expectations tells."""

    suite: list[str] | None
    workers: int | None
    executor: Executor | None
    gx: GxFiles


@app.command()
def audit(
    name: Annotated[
        str | None, typer.Argument(help="A dataset's folder name, or a unique beginning of it; else --all.")
    ] = None,
    root: Root = Path(),
    everything: Annotated[
        bool, typer.Option("--all", help="Audit all datasets; the exit code is the worst: 2, 3, 1, 0.")
    ] = False,
    suite: Annotated[
        list[str] | None,
        typer.Option(help="Name or file of a suite, instead of the configured ones; may be repeated."),
    ] = None,
    fail_on: Annotated[
        FailOn, typer.Option("--fail-on", help="warning: exit code 1 where anything warns; the verdict stays.")
    ] = FailOn.CRITICAL,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Measure so many parts of shards side by side; else as many as there are cores. With ray: shards.",
        ),
    ] = None,
    engine: Annotated[
        Engine, typer.Option(help="What measures shards: local, all cores of this machine, or ray, many machines.")
    ] = Engine.LOCAL,
    ray_address: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of a Ray cluster that this machine is part of; else RAY_ADDRESS, else ray is started here.",
        ),
    ] = None,
    gx_json: GxJson = None,
    gx_docs: GxDocs = None,
    form: Format = Form.TEXT,
) -> None:
    """Audit every row and write verdict, reports and quarantine to reports/NAME/. Exit 0: it may be merged."""
    from toolkit.store.remote import Use

    if everything == (name is not None):
        problem = "expected a name or --all, found both" if everything else "missing argument 'name'"
        raise UsageError(f"audit: {problem}; see tokenproof audit --help (--all audits all datasets)")
    names = None if name is None else [name]
    with (
        _executor(engine, ray_address, workers) as executor,
        opened(root, names, use=Use.AUDIT, shards=executor is None) as workspace,
    ):
        how = _How(suite, workers, executor, GxFiles(json=gx_json, docs=gx_docs))
        code = (
            _audited_all(workspace, how, fail_on, form)
            if name is None
            else _audited_one(workspace, workspace.find_dataset(name), how, fail_on, form)
        )
    raise typer.Exit(code)


@contextmanager
def _executor(engine: Engine, ray_address: str | None, workers: int | None) -> Iterator[Executor | None]:
    """What measures shards; None for this process.

    Raises:
        ConfigError: ray is not installed, or its address is none.
        UnreachableError: there is no cluster there.
    """
    if engine is Engine.LOCAL:
        if ray_address is not None:
            raise UsageError("audit: --ray-address: expected --engine ray with it")
        yield None
        return
    from toolkit.audit.on_ray import ray_executor

    with ray_executor(ray_address, workers, lambda sentence: print(printable(sentence), file=sys.stderr)) as executor:
        yield executor


def _audited_one(workspace: Workspace, dataset: Dataset, how: _How, fail_on: FailOn, form: Form) -> int:
    how.gx.clear()
    verdict = _audited(workspace, dataset, how)
    how.gx.write()
    if form is Form.JSON:
        print_json(verdict)
    else:
        _show(workspace, dataset, verdict)
    return code_with_warnings(exit_code_of(verdict), verdict, fail_on)


def _audited_all(workspace: Workspace, how: _How, fail_on: FailOn, form: Form) -> int:
    how.gx.clear()
    found = _audited_each(workspace, how, fail_on, form)
    how.gx.write()
    code = worst(one.exit_code for one in found)
    if form is Form.JSON:
        print_json({"exit_code": code, "datasets": found})
    else:
        _show_all(found)
    return code


def _audited_each(workspace: Workspace, how: _How, fail_on: FailOn, form: Form) -> Sequence[Audited]:
    """Audit all datasets; one that cannot be audited does not keep the others from it.

    Raises:
        ConfigError: tokenproof.toml has faults, or there is no dataset.
    """
    settings_of(workspace)
    found = []
    for name in workspace.dataset_names():
        dataset = workspace.dataset_named(name)
        try:
            verdict = _audited(workspace, dataset, how)
        except TokenproofError as error:
            print(f"{printable(name)}: {printable(str(error))}", file=sys.stderr)
            show_problem_on_github(name, str(error))
            found.append(Audited(dataset=name, exit_code=error.exit_code, problem=str(error)))
            continue
        if form is Form.TEXT:
            _show(workspace, dataset, verdict)
        code = code_with_warnings(exit_code_of(verdict), verdict, fail_on)
        found.append(Audited(dataset=name, exit_code=code, verdict=verdict))
    if not found:
        raise ConfigError(f"{workspace.datasets}: expected a folder for each dataset, found none")
    return found


def _show(workspace: Workspace, dataset: Dataset, verdict: Verdict) -> None:
    from toolkit.report.console import render_verdict
    from toolkit.store.verdicts import REPORT_NAMES

    page = lies_at(workspace, dataset.reports / REPORT_NAMES[0])
    write_text(render_verdict(verdict, report=page, colour=wants_colour(), width=terminal_width()))


def _show_all(found: Sequence[Audited]) -> None:
    from toolkit.report.console import render_told

    write_text("\n" + render_told(tell_all(found), colour=wants_colour(), width=terminal_width()))


def _audited(workspace: Workspace, dataset: Dataset, how: _How) -> Verdict:
    """Audit one dataset, write its reports, and tell a CI runner.

    Raises:
        TokenproofError: it cannot be audited.
    """
    from toolkit.accounting import accounting
    from toolkit.audit.run import audit as run
    from toolkit.store.previous import keep_previous
    from toolkit.store.shards import read_live

    settings = settings_of(workspace).dataset(dataset.name)
    contract = contract_of(workspace, settings)
    suites = suites_of(workspace, settings, contract, how.suite)
    counts = accounting(dataset, contract, settings)
    load_vocabulary = cache(lambda: vocabulary_of(contract))
    keep_previous(dataset)
    with counting(f"audit {dataset.name}", read_live(dataset).rows) as advance:
        verdict = run(
            dataset,
            contract,
            load_vocabulary,
            suites,
            counts,
            allowed_providers=settings.providers,
            workers=how.workers,
            executor=how.executor,
            report=lambda verdict: write_reports(dataset, verdict, contract, load_vocabulary),
            publish=lambda evaluations: how.gx.keep(dataset.name, evaluations),
            tell=lambda sentence: print(printable(f"{dataset.name}: {sentence}"), file=sys.stderr),
            advance=advance,
        )
    show_on_github(verdict)
    return verdict


def exit_code_of(verdict: Verdict) -> int:
    """0 passed; 1 an expectation closed the gate; 3 rows could not be read, or there are none, or not yet all."""
    if verdict.unreadable or not verdict.rows:
        return EXIT_INCOMPLETE
    if not verdict.passed and not verdict.accounting.unsettled:
        return EXIT_GATE_CLOSED
    return EXIT_PASSED if verdict.passed and verdict.complete else EXIT_INCOMPLETE
