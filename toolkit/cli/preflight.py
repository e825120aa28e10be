"""`tokenproof preflight`, and the part of it that `tokenproof generate` runs first."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.app import Form, Format, Root, app, counting, is_terminal, print_json, printable, say, terminal_width
from toolkit.cli.places import settings_of, workspace_of

if TYPE_CHECKING:
    from toolkit.config import EndpointSettings
    from toolkit.generate.preflight.checks import Report
    from toolkit.generate.preparing import Job


@app.command()
def preflight(
    names: Annotated[list[str], typer.Argument(help="Datasets: folder names, or unique beginnings of them.")],
    root: Root = Path(),
    requests: Annotated[
        bool,
        typer.Option(
            "--requests/--no-requests",
            help="Send one real request to each provider that may answer; its reply is kept as a row.",
        ),
    ] = True,
    providers: Annotated[int, typer.Option(min=1, max=100, help="How many providers to ask at most.")] = 8,
    dollars: Annotated[float | None, typer.Option(help="US dollars that the run may cost.")] = None,
    url: Annotated[str | None, typer.Option(help="Base URL of the endpoint, instead of the configured one.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="A line for every check.")] = False,
    form: Format = Form.TEXT,
) -> None:
    """Check prompts, settings, key, credit and providers, audit a real reply of each, and estimate what a run takes.

    Exit 0: go, perhaps with warnings. 2: prompts or settings have to be changed, or no key is set. 3: endpoint, key or
    credit will not do.
    """
    from toolkit.cli.generate import checked_dollars, given, jobs_of
    from toolkit.generate.preflight.run import preflight as run
    from toolkit.report.preflight import render_preflight

    budget = checked_dollars(dollars)
    settings = settings_of(workspace_of(root))
    jobs = jobs_of(root, list(dict.fromkeys(names)), settings, {}, given(url=url), None, None)
    with counting(f"preflight {' '.join(job.dataset.name for job in jobs)}") as advance:
        report = run(
            jobs,
            dollars=settings.budget.dollars if budget is None else budget,
            requests=requests,
            most_providers=providers,
            advance=advance,
        )
    if form is Form.JSON:
        print_json({"datasets": [job.dataset.name for job in jobs], **report.as_json()})
    else:
        for line in render_preflight(report, verbose=verbose, width=terminal_width()):
            say(line)
    raise typer.Exit(report.exit_code)


# --- before a run -----------------------------------------------------------------------------------


def is_paid(endpoint: EndpointSettings) -> bool:
    """Whether somebody else's server answers, who is paid for it or at least wants a key."""
    from urllib.parse import urlsplit

    from toolkit.config import is_loopback
    from toolkit.records import SOURCES_WITH_PROVIDERS

    remote = not is_loopback(urlsplit(endpoint.url))
    return remote and (endpoint.source in SOURCES_WITH_PROVIDERS or bool(endpoint.key_env))


def before_run(jobs: Sequence[Job], dollars: float | None) -> float:
    """The whole preflight for those jobs that are paid for; what its requests cost, in US dollars.

    Raises:
        PreflightError: something forbids the run, or a person at the terminal does not want it.
        StoreError: as `preflight`.
    """
    from toolkit.generate.preflight.run import preflight as run

    paid = [job for job in jobs if is_paid(job.endpoint)]
    if not paid:
        return 0.0
    with counting(f"preflight {' '.join(job.dataset.name for job in paid)}") as advance:
        report = run(paid, dollars=dollars, advance=advance)
    _heed(report)
    return report.cost_usd


def check_before_sending(jobs: Sequence[Job]) -> None:
    """What costs nothing and takes no time, for those jobs that had no whole preflight.

    Raises:
        PreflightError: something forbids the run, or a person at the terminal does not want it.
    """
    from toolkit.generate.preflight.run import check_endpoints

    own = [job for job in jobs if not is_paid(job.endpoint)]
    if own:
        _heed(check_endpoints(own))


def _heed(report: Report) -> None:
    """Tell what is wrong on standard error. A failure ends it; of warnings a person is asked, if there is one."""
    from toolkit.errors import PreflightError
    from toolkit.generate.preflight.checks import Outcome
    from toolkit.report.preflight import found_lines, outcome_sentence, problem_lines

    head = f"preflight: {outcome_sentence(report)}"
    if report.outcome is Outcome.NO_GO:
        found = found_lines(report, width=terminal_width())
        raise PreflightError(
            "\n".join([head, *found, "nothing more was sent; --no-preflight leaves this out"]), report.exit_code
        )
    lines = [head, *(f"  {line}" for line in problem_lines(report))]
    if report.outcome is Outcome.WARNINGS or report.requests:
        print(printable("\n".join(lines)), file=sys.stderr)
    asks = report.outcome is Outcome.WARNINGS and is_terminal(sys.stdin) and is_terminal()
    if asks and not typer.confirm("go on?", err=True):
        raise PreflightError("not wanted; nothing more was sent", report.exit_code)
