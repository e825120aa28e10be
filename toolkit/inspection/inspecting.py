"""What a page shows beside the verdict, read from the files of an audit. What cannot be read is left off, and told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import orjson
import polars as pl
import pyarrow as pa

from toolkit.audit.measure import measure
from toolkit.columns import QUARANTINE_SCHEMA
from toolkit.contract import Contract
from toolkit.errors import ContractError, ShardError
from toolkit.findings import ConventionFound
from toolkit.inspection.chips import clipped_json, windows_of
from toolkit.inspection.choosing import Chosen, choose, row_results
from toolkit.inspection.distributions import distributions_of
from toolkit.inspection.files import RowPlace, find_rows, read_rows, scan_facts
from toolkit.inspection.model import Identity, Inspection, TokenView
from toolkit.inspection.rows import faults_of
from toolkit.records import ExpectationResult, LiveShard, Verdict
from toolkit.store.workspace import Dataset
from toolkit.vocabulary import Vocabulary

_IDS_ON_A_PAGE = 9_000
_REPLIES_ON_A_PAGE = 60_000
"""Characters of raw replies."""


def inspect(
    dataset: Dataset, verdict: Verdict, contract: Contract, load_vocabulary: Callable[[], Vocabulary]
) -> Inspection:
    """Distributions and failing rows of a dataset.

    Args:
        dataset: Whose reports are written.
        verdict: The audit's; its quarantine lies beside it.
        contract: The dataset's contract now.
        load_vocabulary: Called only where rows are shown.
    """
    left_off: list[str] = []
    same = contract.sha256 == verdict.contract_sha256
    quarantine = _quarantine(dataset)
    facts, missing = scan_facts(dataset, verdict)
    distributions = None
    if missing and verdict.shards:
        left_off.append(
            f"facts of {missing:,} of {len(verdict.shards):,} shards are not there: distributions lack them"
        )
    try:
        if facts is not None:
            distributions = distributions_of(facts, quarantine, verdict, contract if same else None)
    except (pl.exceptions.PolarsError, OSError) as error:
        left_off.append(f"distributions: the facts cannot be read ({_first_line(error)})")
    if not same:
        left_off.append("rows: the contract has changed since the audit; audit again to see them id by id")
        return Inspection(distributions=distributions, left_off=tuple(left_off))
    try:
        chosen = choose(quarantine, verdict)
        views = _views(dataset, verdict, chosen, load_vocabulary)
    except (ShardError, ContractError) as error:
        left_off.append(f"rows: {error}")
        return Inspection(distributions=distributions, left_off=tuple(left_off))
    except (pl.exceptions.PolarsError, OSError) as error:
        left_off.append(f"rows: {_first_line(error)}")
        return Inspection(distributions=distributions, left_off=tuple(left_off))
    return Inspection(distributions=distributions, views=tuple(views), failing=chosen.failing, left_off=tuple(left_off))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _quarantine(dataset: Dataset) -> pl.LazyFrame:
    """quarantine.parquet, or no rows where it is missing."""
    if dataset.quarantine.is_file():
        return pl.scan_parquet(dataset.quarantine)
    empty = pl.from_arrow(QUARANTINE_SCHEMA.empty_table())
    assert isinstance(empty, pl.DataFrame)
    return empty.lazy()


def _views(
    dataset: Dataset, verdict: Verdict, chosen: Chosen, load_vocabulary: Callable[[], Vocabulary]
) -> list[TokenView]:
    reasons: dict[RowPlace, tuple[str, ...]] = dict(chosen.places)
    if chosen.named:
        found = find_rows(dataset, verdict.shards, [identity[0] for identity in chosen.named])
        for identity, failed in chosen.named.items():
            for place in found.get(identity, [])[:1]:
                reasons[place] = (*reasons.get(place, ()), *failed)
    if not reasons:
        return []
    room = max(min(_IDS_ON_A_PAGE // len(reasons), 120), 24)
    characters = max(min(_REPLIES_ON_A_PAGE // len(reasons), 2_000), 260)
    return views_of(dataset, verdict.shards, reasons, verdict, load_vocabulary(), room=room, characters=characters)


def view_sample(
    dataset: Dataset,
    shards: Sequence[LiveShard],
    identity: tuple[str, int | None, int | None],
    verdict: Verdict | None,
    vocabulary: Vocabulary,
    *,
    room: int | None,
    characters: int,
) -> list[TokenView]:
    """The rows of one sample, every turn and index where none is named; nothing where there are none.

    Args:
        shards: The live shards.
        identity: (sample_id, turn, sample_index), None for all.
        verdict: The last audit's, where there is one: what failed, and how providers count.
        room: About how many ids of each row; None: all.
        characters: Of the raw reply.

    Raises:
        ShardError: a shard cannot be read.
    """
    sample_id, turn, index = identity
    found = find_rows(dataset, shards, [sample_id])
    places = [
        place
        for (_, its_turn, its_index), places in sorted(found.items())
        if turn in (None, its_turn) and index in (None, its_index)
        for place in places
    ]
    reasons = {place: _reasons_of(dataset, place, verdict) for place in places}
    return views_of(dataset, shards, reasons, verdict, vocabulary, room=room, characters=characters)


def _reasons_of(dataset: Dataset, place: RowPlace, verdict: Verdict | None) -> tuple[str, ...]:
    if verdict is None:
        return ()
    try:
        rows = (
            _quarantine(dataset)
            .filter((pl.col("shard") == place.shard) & (pl.col("row_index") == place.row_index))
            .select("reasons")
            .collect()
        )
    except (pl.exceptions.PolarsError, OSError):
        return ()
    return tuple(str(reason) for reasons in rows["reasons"].to_list() for reason in reasons)


def views_of(
    dataset: Dataset,
    shards: Sequence[LiveShard],
    reasons: Mapping[RowPlace, tuple[str, ...]],
    verdict: Verdict | None,
    vocabulary: Vocabulary,
    *,
    room: int | None,
    characters: int,
) -> list[TokenView]:
    """Rows id by id, in the order of their shards.

    Raises:
        ShardError: a shard cannot be read.
    """
    places = sorted(reasons, key=lambda place: (place.shard, place.row_index))
    rows = read_rows(dataset, shards, places)
    if rows.num_rows != len(places):
        raise ShardError(f"{dataset.name}: expected {len(places):,} rows, found {rows.num_rows:,}; audit again")
    paths = {shard.sha256: shard.path for shard in shards}
    results: dict[str, ExpectationResult] = {}
    conventions: tuple[ConventionFound, ...] = ()
    if verdict is not None:
        results = {result.id: result for result in row_results(verdict)}
        conventions = verdict.learned.conventions
    facts = _facts(rows, vocabulary)
    twins = _twins(dataset, shards, rows, places, [results[r] for r in {*chain(*reasons.values())} if r in results])
    views = []
    for place, row, measured in zip(places, rows.to_pylist(), facts, strict=True):
        failed = [results[reason] for reason in reasons[place] if reason in results]
        views.append(
            _view(row, measured, place, paths[place.shard], reasons[place], failed, conventions, vocabulary,
                  twins=twins, room=room, characters=characters)
        )  # fmt: skip
    return views


def _unique(results: Iterable[ExpectationResult]) -> set[str]:
    """Expectations that no two rows are of one identity."""
    return {r.id for r in results if r.type == "expect_compound_columns_to_be_unique"}


def _twins(
    dataset: Dataset,
    shards: Sequence[LiveShard],
    rows: pa.Table,
    places: Sequence[RowPlace],
    failed: Iterable[ExpectationResult],
) -> dict[Identity, list[str]]:
    """Where each identity of these rows stands, if any row fails for standing twice."""
    if not _unique(failed):
        return {}
    paths = {shard.sha256: shard.path for shard in shards}
    found = find_rows(dataset, shards, rows["sample_id"].to_pylist())
    return {
        identity: [f"{paths[place.shard]} row {place.row_index:,}" for place in sorted(those)]
        for identity, those in found.items()
    }


def _facts(rows: pa.Table, vocabulary: Vocabulary) -> list[dict[str, Any]]:
    facts: list[dict[str, Any]] = measure(rows, vocabulary.contract, vocabulary, shard_sha256="").to_pylist()
    return facts


def _view(
    row: Mapping[str, Any],
    facts: Mapping[str, Any],
    place: RowPlace,
    path: str,
    reasons: tuple[str, ...],
    failed: Sequence[ExpectationResult],
    conventions: Sequence[ConventionFound],
    vocabulary: Vocabulary,
    *,
    twins: Mapping[Identity, Sequence[str]],
    room: int | None,
    characters: int,
) -> TokenView:
    faults = faults_of(row, facts, failed, conventions, vocabulary)
    here = f"{path} row {place.row_index:,}"
    others = [where for where in twins.get((row["sample_id"], row["turn"], row["sample_index"]), ()) if where != here]
    if others:
        found = f"{', '.join(others[:3])}{f' and {len(others) - 3:,} more' if len(others) > 3 else ''}"
        faults = tuple(replace(f, found=f"the same in {found}") if f.code in _unique(failed) else f for f in faults)
    prompt, output = row["prompt_ids"], row["output_ids"]
    return TokenView(
        sample_id=row["sample_id"],
        turn=row["turn"],
        sample_index=row["sample_index"],
        row_key=row["row_key"],
        shard=path,
        row_index=place.row_index,
        source=row["source"],
        provider=row["provider"],
        model=row["model"],
        mode=row["mode"],
        ids_source=row["ids_source"],
        rebuild_status=row["rebuild_status"],
        finish_reason=row["finish_reason"],
        native_finish_reason=row["native_finish_reason"],
        n_prompt=None if prompt is None else len(prompt),
        n_output=None if output is None else len(output),
        tokens={name: row[name] for name in ("completion_tokens", "reasoning_tokens", "prompt_tokens")},
        notes=tuple(row["notes"] or ()),
        reasons=reasons,
        supervised=not any(result.severity == "critical" for result in failed) and not row["probe"],
        windows=windows_of(prompt, output, faults, vocabulary, room=room),
        faults=faults,
        reply=_raw_reply(row["payload"], characters),
    )


def _raw_reply(payload: str, characters: int) -> str:
    """The body that came, as the payload keeps it."""
    try:
        body = orjson.loads(payload).get("body")
    except (ValueError, AttributeError):
        body = None
    if not isinstance(body, str):
        return ""
    return clipped_json(body, max(characters // 6, 60), characters)
