"""A preflight of one dataset against a server on this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.generate.conftest import PassingTime, dataset, run, scripted, workspace
from toolkit.config import DatasetSettings, EndpointSettings
from toolkit.contract import Contract
from toolkit.generate.preflight.checks import Check, Report
from toolkit.generate.preflight.run import preflight
from toolkit.generate.preparing import Job
from toolkit.generate.run import Surroundings
from toolkit.store.workspace import Dataset
from toolkit.vocabulary import Vocabulary

__all__ = ["dataset", "run", "scripted", "workspace"]

Look = Callable[..., Report]


@pytest.fixture
def job_at(dataset: Dataset, kimi: Contract, vocabulary: Vocabulary) -> Callable[..., Job]:
    def make(endpoint: EndpointSettings, **settings: Any) -> Job:
        own = DatasetSettings(**{"max_tokens": 256, **settings})
        return Job(dataset=dataset, settings=own, endpoint=endpoint, contract=kimi, vocabulary=vocabulary)

    return make


@pytest.fixture
def look(job_at: Callable[..., Job]) -> Look:
    """`preflight` on the fixture's dataset; waits take no time."""

    def go(
        endpoint: EndpointSettings,
        *,
        dollars: float | None = None,
        requests: bool = True,
        most: int = 8,
        **settings: Any,
    ) -> Report:
        passing = PassingTime()
        return preflight(
            [job_at(endpoint, **settings)], dollars=dollars, requests=requests, most_providers=most,
            surroundings=Surroundings(sleep=passing.sleep, ticks=passing.ticks, chance=lambda: 0.5),
        )  # fmt: skip

    return go


def checks_of(report: Report, what: str, provider: str | None = None) -> list[Check]:
    return [check for check in report.checks if check.what == what and provider in (None, check.provider)]


def results(report: Report, what: str) -> dict[str | None, str]:
    """The result for each provider."""
    return {check.provider: str(check.result) for check in checks_of(report, what)}


def troubles(report: Report) -> list[tuple[str, str | None, str]]:
    return [(c.what, c.provider, str(c.result)) for c in report.checks if c.result in ("warn", "fail")]
