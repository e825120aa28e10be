"""Facts are kept by the phrases that they were measured with, and text health can be switched off."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from toolkit.audit.gather import Gathered, gather
from toolkit.errors import ConfigError
from toolkit.phrases import SHIPPED, Phrases
from toolkit.store.facts import facts_path, read_facts, receipt_path
from toolkit.store.shards import read_live
from toolkit.vocabulary import Vocabulary

from .workspace import Bench, make_bench

OTHER = Phrases(refusals=SHIPPED.refusals, boilerplate=(*SHIPPED.boilerplate, "it is"))


@pytest.fixture
def bench(tmp_path: Path, vocabulary: Vocabulary) -> Bench:
    return make_bench(tmp_path, vocabulary, rows=4, bad=())


def gathered(bench: Bench, *, text_health: bool = True) -> Gathered:
    live = read_live(bench.dataset).shards
    return gather(
        bench.dataset, live, bench.contract, bench.load, seed="", text_health=text_health, tell=bench.told.append
    )


def column(found: Gathered, name: str) -> list[object]:
    values: list[object] = found.facts.scan().collect()[name].to_list()
    return values


def test_each_list_of_phrases_has_facts_of_its_own(bench: Bench) -> None:
    shard = read_live(bench.dataset).shards[0]
    paths = {facts_path(bench.dataset, shard, bench.contract, phrases=p) for p in (SHIPPED, OTHER, None)}
    assert len(paths) == 3
    assert SHIPPED.sha256[:16] in facts_path(bench.dataset, shard, bench.contract).name


def test_a_phrase_that_is_added_is_looked_for_at_once(bench: Bench, tmp_path: Path) -> None:
    assert column(gathered(bench), "boilerplate") == [False] * 4
    (tmp_path / "phrases.toml").write_text('boilerplate = ["it is"]\n', encoding="utf-8")
    found = gathered(bench)
    assert (found.measured_shards, column(found, "boilerplate")) == (2, [True] * 4)
    assert gathered(bench).measured_shards == 0
    (tmp_path / "phrases.toml").unlink()
    assert (gathered(bench).measured_shards, column(gathered(bench), "boilerplate")) == (0, [False] * 4)
    assert bench.told == []


def test_a_faulty_list_stops_the_audit(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "phrases.toml").write_text('boilerplates = ["it is"]\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"phrases.toml: boilerplates: unknown key"):
        bench.audit()
    assert not bench.dataset.verdict.exists()


def test_switched_off_facts_are_null_and_kept_apart(bench: Bench) -> None:
    gathered(bench)
    off = gathered(bench, text_health=False)
    assert (off.measured_shards, column(off, "n_control_chars")) == (2, [None] * 4)
    assert gathered(bench, text_health=False).measured_shards == 0
    assert column(gathered(bench), "n_control_chars") == [0] * 4
    assert bench.audit(text_health=False).passed


def test_facts_of_other_phrases_are_not_taken_under_a_name_that_is_not_theirs(bench: Bench) -> None:
    gathered(bench, text_health=False)
    shard = read_live(bench.dataset).shards[0]
    off = facts_path(bench.dataset, shard, bench.contract, phrases=None)
    on = facts_path(bench.dataset, shard, bench.contract)
    off.rename(on)
    receipt_path(off).rename(receipt_path(on))
    found = gathered(bench)
    assert column(found, "n_control_chars") == [0] * 4
    assert "its receipt is of another shard, contract, kernel or list of phrases" in bench.told[0]
    kept = read_facts(bench.dataset, shard, bench.contract)
    assert kept is not None
    assert isinstance(kept.table, pa.Table)
