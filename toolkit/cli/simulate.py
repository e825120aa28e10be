"""`tokenproof simulate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli.app import Form, Format, Root, app, print_json
from toolkit.cli.places import contract_named, vocabulary_of, workspace_of


@app.command()
def simulate(
    contract_name: Annotated[str, typer.Option("--contract", help="Model to play.")] = "kimi-k2.5",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    seed: Annotated[int | None, typer.Option(help="Another seed gives other answers and faults.")] = None,
    scenario_name: Annotated[
        str | None,
        typer.Option("--scenario", help="What goes wrong: fast, chaos, storm, or a .toml file (docs/simulator.md)."),
    ] = None,
    ledger: Annotated[Path | None, typer.Option(help="Append every request, and what it cost, to this file.")] = None,
    url_file: Annotated[
        Path | None, typer.Option(help="Write the base URL to this file once the server listens.")
    ] = None,
    root: Root = Path(),
    form: Format = Form.TEXT,
) -> None:
    """Serve a simulated OpenRouter on this machine, with the real vocabulary and providers that count differently.

    The same port also plays an engine: POST /generate and /v1/chat/completions, with ids.
    """
    from dataclasses import replace

    from toolkit.simulate.scenario import Scenario
    from toolkit.simulate.scenario_file import read_scenario
    from toolkit.simulate.server import run
    from toolkit.store.files import write_atomic

    contract = contract_named(workspace_of(root), contract_name)
    scenario = Scenario(latency_s=(0.02, 0.2), varies=True) if scenario_name is None else read_scenario(scenario_name)
    if seed is not None:
        scenario = replace(scenario, seed=seed)

    def announce(url: str) -> None:
        base = f"{url}/api/v1"
        if url_file is not None:
            write_atomic(url_file, base.encode() + b"\n")
        if form is Form.JSON:
            print_json({"url": base, "contract": contract.name, "seed": scenario.seed})
        else:
            print(base)
            told = f"any key will do:\n  export OPENROUTER_API_KEY=any\n  tokenproof generate NAME --url {base}"
            print(told, file=sys.stderr, flush=True)
        sys.stdout.flush()

    run(contract, vocabulary_of(contract), scenario, port=port, ledger=ledger, announce=announce)
