"""`tokenproof simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli.app import Root, app
from toolkit.cli.places import vocabulary_of, workspace_of


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

    contract = read_contract(contract_name, folder=workspace_of(root).contracts)
    scenario = Scenario(seed=seed, latency_s=(0.02, 0.2), reply_model=contract.models[0].replace("*", "0"), varies=True)

    def announce(url: str) -> None:
        base = f"{url}/api/v1"
        if url_file is not None:
            write_atomic(url_file, base.encode() + b"\n")
        print(base, flush=True)

    run(contract, vocabulary_of(contract), scenario, port=port, announce=announce)
