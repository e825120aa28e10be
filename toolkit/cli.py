"""The commands. Each reads its options, calls one stage, prints and exits; heavy imports wait until then."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from toolkit import __version__
from toolkit.errors import EXIT_GATE_CLOSED, EXIT_INCOMPLETE, EXIT_PASSED, TokenproofError

if TYPE_CHECKING:
    from toolkit.audit.suite import Suite
    from toolkit.config import DatasetSettings, Settings
    from toolkit.contract import Contract
    from toolkit.records import Verdict
    from toolkit.store.workspace import Dataset, Workspace
    from toolkit.vocabulary import Vocabulary

app = typer.Typer(
    name="tokenproof",
    help="Prove that the token ids you are about to train on are the ids the model produced, "
    "and let nothing else through the merge.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
contract_app = typer.Typer(no_args_is_help=True, help="What a complete output of one model looks like in ids.")
app.add_typer(contract_app, name="contract")


class Form(StrEnum):
    """How a command prints."""

    TEXT = "text"
    JSON = "json"


Root = Annotated[Path, typer.Option("--root", help="Folder with datasets/, expectations/ and tokenproof.toml.")]
Format = Annotated[Form, typer.Option("--format", help="text for people, json for machines.")]
DatasetName = Annotated[str, typer.Argument(help="A dataset's folder name, or a unique beginning of it.")]


def main() -> None:
    """Entry point of `tokenproof`."""
    _run(app)


def audit_main() -> None:
    """Entry point of `audit`: `audit B3 …` is `tokenproof audit B3 …`."""
    sys.argv.insert(1, "audit")
    _run(app)


def _run(command: Callable[[], Any]) -> NoReturn:
    """Run a command; an error that a user should read is printed as one message, and decides the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        command()
    except TokenproofError as error:
        if _wants_json():
            _print_json({"error": type(error).__name__, "message": str(error), "exit_code": error.exit_code})
        else:
            print(f"tokenproof: {_printable(str(error))}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(EXIT_INCOMPLETE)
    sys.exit(EXIT_PASSED)


def _wants_json() -> bool:
    arguments = sys.argv[1:]
    return "--format=json" in arguments or any(a == "--format" and b == "json" for a, b in pairwise(arguments))


def _printable(message: str) -> str:
    """A message line by line, without anything that a terminal would obey."""
    from toolkit.report.text import clean

    return "\n".join(clean(line, 2_000) for line in message.split("\n"))


def _print_json(value: object) -> None:
    import msgspec

    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def _say(line: str) -> None:
    print(_printable(line))


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"tokenproof {__version__}")
        raise typer.Exit


# --- generate and import -----------------------------------------------------------------------


@app.command()
def generate(
    name: DatasetName,
    root: Root = Path(),
    samples: Annotated[int | None, typer.Option(min=1, help="Answers to each prompt.")] = None,
    url: Annotated[str | None, typer.Option(help="Base URL of the endpoint, instead of the configured one.")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, max=10_000, help="Requests in flight.")] = None,
    form: Format = Form.TEXT,
) -> None:
    """Ask for an answer to every prompt of datasets/NAME/prompts.jsonl that has none yet."""
    import msgspec

    from toolkit.generate.run import generate as run
    from toolkit.report.console import progress

    workspace = _workspace(root)
    dataset = workspace.find_dataset(name)
    settings = _settings(workspace)
    of_dataset = settings.dataset(dataset.name)
    if samples is not None:
        of_dataset = msgspec.structs.replace(of_dataset, samples=samples)
    endpoint = settings.endpoint(of_dataset.endpoint)
    if url is not None:
        endpoint = msgspec.structs.replace(endpoint, url=url)
    if concurrency is not None:
        endpoint = msgspec.structs.replace(endpoint, concurrency=concurrency)
    contract = _contract(workspace, of_dataset)
    with progress(f"generate {dataset.name}", None, enabled=_is_terminal()) as advance:
        summary = run(dataset, of_dataset, endpoint, contract, _vocabulary(contract), advance=advance)
    if form is Form.JSON:
        _print_json(summary.as_json())
    else:
        for line in summary.lines():
            _say(line)
    raise typer.Exit(summary.exit_code)


@app.command("import")
def import_(
    name: Annotated[str, typer.Argument(help="Dataset to import into, its whole name; made if it does not exist.")],
    files: Annotated[
        list[Path], typer.Argument(help="OpenAI batch output, raw_responses.jsonl or recorded traffic: JSON lines.")
    ],
    root: Root = Path(),
    mode: Annotated[str | None, typer.Option(help="Mode of lines that state none.")] = None,
    model: Annotated[str | None, typer.Option(help="Model of lines that name none.")] = None,
    source: Annotated[str | None, typer.Option(help="Source of lines that do not show theirs.")] = None,
    contract_name: Annotated[str | None, typer.Option("--contract", help="Contract; else the configured one.")] = None,
    local_ids_are_engine: Annotated[
        bool,
        typer.Option(
            "--local-ids-are-engine",
            help="Ids of local lines came from the engine itself (lines with a cost, a gen- id, usage details or a "
            "provider never do).",
        ),
    ] = False,
    form: Format = Form.TEXT,
) -> None:
    """Import answers that you already have."""
    from toolkit.importing import ImportOptions, import_files
    from toolkit.report.console import progress

    workspace = _workspace(root)
    dataset = workspace.dataset_named(name)
    contract = _contract(workspace, _settings(workspace).dataset(dataset.name), contract_name)
    options = ImportOptions(mode=mode, model=model, source=source, local_ids_are_engine=local_ids_are_engine)
    with progress(f"import into {dataset.name}", None, enabled=_is_terminal()) as advance:
        counts = import_files(dataset, files, contract, _vocabulary(contract), options, advance)
    if form is Form.JSON:
        _print_json({"dataset": dataset.name, **counts.as_json()})
        return
    _say(
        f"{dataset.name}: {counts.lines:,} lines = {counts.rows:,} rows + {counts.failures:,} failures + "
        f"{counts.already_there:,} already there"
    )
    for title, counted in (("failures", counts.by_reason), ("assumed", counts.assumed), ("rows", counts.statuses)):
        if counted:
            _say(f"  {title}: " + ", ".join(f"{count:,} {what}" for what, count in counted.most_common()))
    if counts.failures:
        _say(f"  each failure with its line and reason: {dataset.failures}")


# --- audit and merge ---------------------------------------------------------------------------


@app.command()
def audit(
    name: DatasetName,
    root: Root = Path(),
    suite: Annotated[
        list[str] | None,
        typer.Option(help="Name or file of a suite, instead of the configured ones; may be repeated."),
    ] = None,
    form: Format = Form.TEXT,
) -> None:
    """Audit every row and write verdict, reports and quarantine to reports/NAME/. Exit 0: it may be merged."""
    from toolkit.accounting import accounting
    from toolkit.audit.run import audit as run
    from toolkit.report.console import progress, render_verdict

    workspace = _workspace(root)
    dataset = workspace.find_dataset(name)
    settings = _settings(workspace).dataset(dataset.name)
    contract = _contract(workspace, settings)
    suites = _suites(workspace, settings, contract, suite)
    with progress(f"audit {dataset.name}", None, enabled=_is_terminal()) as advance:
        verdict = run(
            dataset,
            contract,
            lambda: _vocabulary(contract),
            suites,
            accounting(dataset, contract, settings),
            allowed_providers=settings.providers,
            advance=advance,
        )
    page = _write_reports(dataset, verdict)
    if form is Form.JSON:
        _print_json(verdict)
    else:
        sys.stdout.write(render_verdict(verdict, report=str(page), colour=_is_terminal(sys.stdout), width=_width()))
    raise typer.Exit(exit_code_of(verdict))


def exit_code_of(verdict: Verdict) -> int:
    """0 passed; 1 an expectation closed the gate; 3 rows could not be read, or the dataset is unfinished."""
    if verdict.unreadable:
        return EXIT_INCOMPLETE
    if not verdict.passed:
        return EXIT_GATE_CLOSED
    return EXIT_PASSED if verdict.complete else EXIT_INCOMPLETE


@app.command()
def merge(
    names: Annotated[list[str], typer.Argument(help="Datasets; each must have passed its audit.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the train set.")],
    root: Root = Path(),
    seed: Annotated[int, typer.Option(help="Shuffle: rows stand in the order of sha256(seed + row_key).")] = 0,
    form: Format = Form.TEXT,
) -> None:
    """Merge audited datasets into one shuffled train set. Refuses whatever was not proved as it lies there now."""
    from toolkit.errors import GateClosed
    from toolkit.gate import open_gate
    from toolkit.merge import merge as run
    from toolkit.merge import render_manifest
    from toolkit.report.console import progress

    workspace = _workspace(root)
    settings = _settings(workspace)
    gates, closed = [], []
    for dataset in dict.fromkeys(workspace.find_dataset(name) for name in names):
        of_dataset = settings.dataset(dataset.name)
        contract = _contract(workspace, of_dataset)
        suites = [(_suite_name(n), _suite_path(workspace, n)) for n in of_dataset.suites or (contract.name,)]
        try:
            gates.append(open_gate(dataset, contract, suites))
        except GateClosed as error:
            closed.append(error)
    if closed:
        reasons = [reason for error in closed for reason in error.reasons]
        raise GateClosed("\n".join(str(error) for error in closed), reasons)
    with progress("merge", None, enabled=_is_terminal()) as advance:
        manifest = run(gates, output, seed=seed, advance=advance)
    if form is Form.JSON:
        _print_json(manifest)
        return
    for line in render_manifest(manifest):
        _say(line)
    _say(f"train set: {output}")


# --- contract and simulate -----------------------------------------------------------------------


@contract_app.command("list")
def contract_list() -> None:
    """Name the contracts that come with the tool."""
    from toolkit.contract import read_contract, shipped_contracts

    for name in shipped_contracts():
        contract = read_contract(name)
        _say(f"{name}: {contract.title}; modes {', '.join(contract.modes)}; models {', '.join(contract.models)}")


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

    contract = read_contract(name, folder=_workspace(root).contracts)
    lines = list(proof_of(contract, vocabulary))
    holds = all(line.holds for line in lines)
    if form is Form.JSON:
        _print_json({"contract": contract.name, "sha256": contract.sha256, "holds": holds, "lines": lines})
    else:
        title = f"contract {contract.name}, sha256 {contract.sha256}"
        shown = [(line.what, line.expected, line.found, line.holds) for line in lines]
        sys.stdout.write(render_proof(title, shown, colour=_is_terminal(sys.stdout), width=_width()))
    if not holds:
        from toolkit.errors import EXIT_USAGE

        raise typer.Exit(EXIT_USAGE)


@app.command()
def simulate(
    contract_name: Annotated[str, typer.Option("--contract", help="Model to play.")] = "kimi-k2.5",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    seed: Annotated[int, typer.Option(help="Another seed gives other answers.")] = 0,
    url_file: Annotated[
        Path | None, typer.Option(help="Write the base URL to this file once the server listens.")
    ] = None,
    root: Root = Path(),
) -> None:
    """Serve a simulated OpenRouter on this machine, with the real vocabulary and providers that count differently."""
    from toolkit.contract import read_contract
    from toolkit.simulate.scenario import Scenario
    from toolkit.simulate.server import run
    from toolkit.store.files import write_atomic

    contract = read_contract(contract_name, folder=_workspace(root).contracts)
    scenario = Scenario(seed=seed, latency_s=(0.02, 0.2), reply_model=contract.models[0].replace("*", "0"), varies=True)

    def announce(url: str) -> None:
        base = f"{url}/api/v1"
        if url_file is not None:
            write_atomic(url_file, base.encode() + b"\n")
        print(base, flush=True)

    run(contract, _vocabulary(contract), scenario, port=port, announce=announce)


# --- what commands share -------------------------------------------------------------------------


def _workspace(root: Path) -> Workspace:
    from toolkit.errors import ConfigError
    from toolkit.store.workspace import Workspace

    if not root.is_dir():
        raise ConfigError(f"--root {root}: expected a folder")
    return Workspace(root)


def _settings(workspace: Workspace) -> Settings:
    from toolkit.config import read_settings

    return read_settings(workspace)


def _contract(workspace: Workspace, settings: DatasetSettings, name: str | None = None) -> Contract:
    from toolkit.contract import read_contract

    return read_contract(name or settings.contract, folder=workspace.contracts)


def _vocabulary(contract: Contract) -> Vocabulary:
    from toolkit.vocabulary import load_vocabulary

    return load_vocabulary(contract)


def _suites(
    workspace: Workspace, settings: DatasetSettings, contract: Contract, chosen: list[str] | None
) -> list[tuple[Suite, Path]]:
    from toolkit.audit.suite import read_suite

    paths = [_suite_path(workspace, name) for name in chosen or settings.suites or (contract.name,)]
    return [(read_suite(path), path) for path in paths]


def _suite_name(name: str) -> str:
    return Path(name).stem if name.endswith(".json") else name


def _suite_path(workspace: Workspace, name: str) -> Path:
    """A suite by path, or by name from expectations/, else the shipped one."""
    from toolkit.audit.suite import shipped_suite

    if name.endswith(".json") or "/" in name:
        path = Path(name)
        return path if path.exists() or path.is_absolute() else workspace.root / path
    own = workspace.expectations / f"{name}.json"
    return own if own.exists() else shipped_suite(name)


def _write_reports(dataset: Dataset, verdict: Verdict) -> Path:
    from toolkit.report.html import render_html
    from toolkit.report.junit import render_junit
    from toolkit.report.summary import render_summary
    from toolkit.store.files import write_atomic

    page = dataset.reports / "index.html"
    write_atomic(page, render_html(verdict).encode())
    write_atomic(dataset.reports / "junit.xml", render_junit(verdict).encode())
    write_atomic(dataset.reports / "summary.md", render_summary(verdict).encode())
    return page


def _is_terminal(stream: Any = None) -> bool:
    return bool((stream or sys.stderr).isatty())


def _width() -> int:
    import shutil

    return max(60, min(120, shutil.get_terminal_size((80, 24)).columns))
