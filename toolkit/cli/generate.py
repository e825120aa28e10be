"""`tokenproof generate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolkit.cli.app import Form, Format, Root, app, counting, print_json, say
from toolkit.cli.places import contract_of, settings_of, vocabulary_of, workspace_of

if TYPE_CHECKING:
    from toolkit.config import EndpointSettings, Settings
    from toolkit.generate.preparing import Job
    from toolkit.generate.status import RunStatus
    from toolkit.generate.summary import RunSummary


@app.command()
def generate(
    names: Annotated[list[str], typer.Argument(help="Datasets: folder names, or unique beginnings of them.")],
    root: Root = Path(),
    samples: Annotated[
        int | None,
        typer.Option(min=1, help="Answers to each prompt; else the settings', or as many as the run before."),
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Completion tokens that each dataset may hold, earlier runs included.")
    ] = None,
    dollars: Annotated[float | None, typer.Option(help="US dollars that this run may cost.")] = None,
    probe: Annotated[
        float | None, typer.Option(help="Percentage of answered prompts to ask again of another endpoint.")
    ] = None,
    probe_endpoint: Annotated[str | None, typer.Option(help="Which endpoint that is.")] = None,
    url: Annotated[str | None, typer.Option(help="Base URL of the endpoint, instead of the configured one.")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, max=10_000, help="Requests in flight.")] = None,
    preflight: Annotated[
        bool,
        typer.Option(
            "--preflight/--no-preflight",
            help="Look first whether it can go well: the whole preflight where answers are paid for, else what "
            "endpoints say of themselves.",
        ),
    ] = True,
    form: Format = Form.TEXT,
) -> None:
    """Ask for an answer to every prompt of datasets/NAME/prompts.jsonl that has none yet.

    Ctrl-C once: nothing more is sent, and what is in flight is kept. Twice: everything stops at once.
    """
    from dataclasses import replace

    from toolkit.cli.preflight import before_run, check_before_sending
    from toolkit.errors import EXIT_INCOMPLETE, EXIT_PASSED
    from toolkit.generate.run import generate_all

    budget = checked_dollars(dollars)
    settings = settings_of(workspace_of(root))
    of_dataset = given(samples=samples, max_total_tokens=tokens)
    of_endpoint = given(url=url, concurrency=concurrency)
    jobs = jobs_of(root, names, settings, of_dataset, of_endpoint, probe, probe_endpoint)
    options = _to_repeat(tokens=tokens, url=url, concurrency=concurrency, root=None if root == Path() else root)
    jobs = [replace(job, options=options) for job in jobs]
    budget = settings.budget.dollars if budget is None else budget
    if preflight:
        spent = before_run(jobs, budget)
        budget = None if budget is None else max(budget - spent, 0.0)
    with _shown(" ".join(job.dataset.name for job in jobs)) as (advance, watch):
        summaries = generate_all(
            jobs,
            dollars=budget,
            before=(lambda: check_before_sending(jobs)) if preflight else (lambda: None),
            advance=advance,
            watch=watch,
        )
    _print(summaries, form)
    raise typer.Exit(EXIT_PASSED if all(summary.complete for summary in summaries) else EXIT_INCOMPLETE)


def jobs_of(
    root: Path,
    names: list[str],
    settings: Settings,
    of_dataset: dict[str, Any],
    of_endpoint: dict[str, Any],
    percent: float | None,
    probe_endpoint: str | None,
) -> list[Job]:
    """What to ask for each dataset; vocabularies are loaded once each."""
    from msgspec.structs import replace

    from toolkit.generate.preparing import Job
    from toolkit.generate.status import samples_asked

    workspace = workspace_of(root)
    vocabularies: dict[str, Any] = {}
    jobs = []
    for name in names:
        dataset = workspace.find_dataset(name)
        own = replace(settings.dataset(dataset.name), **of_dataset)
        if "samples" not in of_dataset:
            # As many as an earlier run was asked for: to go on where it stopped needs no option again.
            own = replace(own, samples=max(own.samples, samples_asked(dataset.folder)))
        contract = contract_of(workspace, own)
        if contract.sha256 not in vocabularies:
            vocabularies[contract.sha256] = vocabulary_of(contract)
        jobs.append(
            Job(
                dataset=dataset,
                settings=own,
                endpoint=replace(settings.endpoint(own.endpoint), **of_endpoint),
                contract=contract,
                vocabulary=vocabularies[contract.sha256],
                probe=_probe(settings, own.endpoint, percent, probe_endpoint),
            )
        )
    return jobs


def _probe(settings: Settings, asked: str, percent: float | None, endpoint: str | None) -> Any:
    from toolkit.errors import ConfigError
    from toolkit.generate.preparing import Probe, check_percent

    if percent is None:
        if endpoint is not None:
            raise ConfigError("--probe-endpoint: expected --probe with it, a percentage of prompts")
        return None
    check_percent(percent)
    return Probe(percent=percent, endpoint=_prober(settings, asked, endpoint))


def _prober(settings: Settings, asked: str, endpoint: str | None) -> EndpointSettings:
    """Whom to probe with: the one that is named, or the only other one."""
    from toolkit.errors import ConfigError

    others = sorted(set(settings.endpoints) - {asked})
    if endpoint is None and len(others) != 1:
        found = ", ".join(others) or "none"
        raise ConfigError(f"--probe: expected --probe-endpoint, or one endpoint beside {asked!r}; found {found}")
    name = others[0] if endpoint is None else endpoint
    if name == asked:
        raise ConfigError(f"--probe-endpoint: expected another endpoint than the dataset's own, found {name!r}")
    return settings.endpoint(name)


def checked_dollars(dollars: float | None) -> float | None:
    """A budget that is one.

    Raises:
        ConfigError: it is not above 0.
    """
    from toolkit.errors import ConfigError

    if dollars is not None and not 0 < dollars <= 1e9:
        raise ConfigError(f"--dollars: expected an amount above 0, found {dollars:g}")
    return dollars


def given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def _to_repeat(**options: Any) -> tuple[str, ...]:
    """Options that stand in no file, as words of a command: who goes on later must give them again.

    An address with a password or a query in it is not among them: either may be a key, and run.json is no place for it.
    """
    words = {name: str(value) for name, value in options.items() if value is not None}
    if not {"@", "?"}.isdisjoint(words.get("url", "")):
        del words["url"]
    return tuple(word for name, value in words.items() for word in (f"--{name}", value))


@contextmanager
def _shown(title: str) -> Iterator[tuple[Callable[[int], None], Callable[[RunStatus], None]]]:
    """A progress bar that begins with the first word about how many asks there are."""
    left: dict[str, int] = {}
    bar: list[Any] = []
    with ExitStack() as stack:

        def advance(count: int, text: str = "") -> None:
            if not bar:
                bar.append(stack.enter_context(counting(f"generate {title}", sum(left.values()))))
            bar[0](count, text)

        def watch(status: RunStatus) -> None:
            # The state of every dataset comes once before anything else happens: then the total is known.
            if status.dataset in left:
                advance(0, status.line() if len(left) == 1 else f"{status.dataset}: {status.line()}")
            left.setdefault(status.dataset, status.left)

        yield advance, watch


def _print(summaries: list[RunSummary], form: Form) -> None:
    if form is Form.JSON:
        runs = [summary.as_json() for summary in summaries]
        complete = all(summary.complete for summary in summaries)
        print_json(runs[0] if len(runs) == 1 else {"complete": complete, "runs": runs})
        return
    for summary in summaries:
        for line in summary.lines():
            say(line)
