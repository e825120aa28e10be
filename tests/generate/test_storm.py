"""Against a server that lets through less than we would send: how much of it is used, and how often it says no.

Requests go over real sockets to the simulated server, by the clock of `virtual_time`: what counts is what the run does,
not how busy the machine is that it runs on. `scripts/storms.py --live` does the same by the real clock.
"""

from __future__ import annotations

import pytest

from toolkit.contract import Contract
from toolkit.store.workspace import Dataset
from toolkit.vocabulary import Vocabulary

from .storm import LIMITS, weather


@pytest.mark.slow
@pytest.mark.parametrize("name", LIMITS)
def test_nine_tenths_of_what_is_allowed_is_used_and_one_in_twenty_refused_at_most(
    dataset: Dataset, kimi: Contract, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch, name: str
):
    goodput, refused = weather(dataset, kimi, vocabulary, LIMITS[name], monkeypatch)
    assert goodput >= 0.9
    assert refused <= 0.05
