"""What an audit learned, in the bounded form of a verdict: conventions, alterations, drift, calibration, providers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl
import pyarrow as pa

from toolkit.audit import conventions as learning
from toolkit.audit.alterations import Alteration
from toolkit.audit.calibration import calibrate
from toolkit.audit.evidence import Convention, Judged
from toolkit.audit.fact_files import Frame, collected
from toolkit.audit.judged_files import JudgedFiles
from toolkit.audit.onpolicy import FOREIGN, GIVEN, count_history
from toolkit.audit.providers import provider_facts
from toolkit.audit.repeats import repeated
from toolkit.audit.tallies import Key
from toolkit.findings import (
    ROWS_NAMED,
    AlterationFound,
    ConventionFound,
    Count,
    Finding,
    Learned,
    ProbeComparison,
    Rival,
    Shape,
)
from toolkit.records import SOURCES_WITH_IDS, IdsSource

_GROUPS_NAMED = 200
_SHAPES_NAMED = 12
_RIVALS_NAMED = 16


def learned_from(
    judged: Judged | JudgedFiles, drift: Sequence[Finding], providers: pa.Table, probes: Sequence[ProbeComparison]
) -> Learned:
    """Everything that was learned, the largest groups first; `left_off` counts what is too long for a verdict.

    Args:
        judged: The judged facts, conventions and alterations.
        drift: What changes within the dataset.
        providers: The providers table.
        probes: Answers of two sources to the same questions.
    """
    conventions = sorted(judged.conventions, key=lambda c: -max(c.learned.rows, c.learned_prompt.rows))
    found = {
        "conventions": len(conventions), "alterations": len(judged.alterations), "providers": providers.num_rows,
    }  # fmt: skip
    return Learned(
        conventions=tuple(map(_convention, conventions[:_GROUPS_NAMED])),
        alterations=tuple(map(_alteration, judged.alterations[:_GROUPS_NAMED])),
        findings=(*_of_rows(judged.facts), *drift),
        calibration=calibrate(judged.facts),
        probes=tuple(probes),
        providers=provider_facts(providers, _GROUPS_NAMED),
        history=count_history(judged.facts),
        left_off={name: count - _GROUPS_NAMED for name, count in found.items() if count > _GROUPS_NAMED},
    )


# --- findings about single rows that no expectation of its own tells -----------------------------

_NAMED = ("sample_id", "turn", "sample_index", "source", "shard", "created")


def _of_rows(facts: Frame) -> Iterator[Finding]:
    """Codes: `off_policy_history`, `given_history`, `engine_rows_without_ids`, `identity_twice`."""
    judged = facts.lazy()
    foreign = judged.filter(pl.col("history") == FOREIGN)
    yield from _rows_found(
        foreign,
        "off_policy_history",
        "warning",
        "the history holds answers of the assistant that are not our own of the earlier turns: off-policy",
    )
    given = judged.filter(pl.col("history") == GIVEN)
    yield from _rows_found(
        given, "given_history", "info", "the prompt's author wrote the assistant's earlier answers, not the model"
    )
    engines = judged.filter(pl.col("source").is_in(sorted(SOURCES_WITH_IDS)))
    without = engines.filter(~(pl.col("ids_source") == str(IdsSource.ENGINE)).fill_null(False))
    yield from _rows_found(
        without,
        "engine_rows_without_ids",
        "warning",
        "a source that gives ids gave none here: the request did not ask for them, the server is too old, or an import "
        "lacked --local-ids-are-engine",
    )
    yield from _rows_found(
        _twice(judged), "identity_twice", "warning", "another row has the same sample_id, turn and index"
    )


def _twice(judged: pl.LazyFrame) -> pl.LazyFrame:
    """Rows that share their identity with another; of most datasets only hashes are looked at."""
    own = judged.filter(~pl.col("probe"))
    identity = pl.struct("sample_id", "turn", "sample_index")
    suspected = repeated(own, identity.hash())
    some = own.select(_NAMED).filter(identity.hash().is_in(suspected.implode()))
    return some.filter(identity.is_duplicated()) if len(suspected) else some


def _rows_found(rows: pl.LazyFrame, code: str, severity: str, says: str) -> Iterator[Finding]:
    counted = collected(rows.select(pl.len().alias("rows"), pl.col("source").n_unique().alias("sources")))
    count, sources = counted.row(0)
    if not count:
        return
    first = collected(rows.select(_NAMED).head(1)).row(0, named=True)
    yield Finding(
        code=code,
        severity=severity,
        says=says,
        source=first["source"] if sources == 1 else None,
        shard=first["shard"],
        row=_name((first["sample_id"], first["turn"], first["sample_index"])),
        created=first["created"],
        rows=count,
    )


# --- conventions and alterations -----------------------------------------------------------------


def _convention(found: Convention) -> ConventionFound:
    shapes = [
        Shape(mode=mode, truncated=truncated, calls=calls, count=_count(learned))
        for (mode, truncated, calls), learned in found.shapes.items()
    ]
    return ConventionFound(
        source=found.source,
        provider=found.provider,
        model=found.model,
        streamed=found.streamed,
        completion=_count(found.learned),
        reasoning=_count(found.learned_reasoning),
        prompt=_count(found.learned_prompt),
        shapes=tuple(shapes[:_SHAPES_NAMED]),
    )


def _count(learned: learning.Learned) -> Count:
    rivals = sorted(learned.excluded, key=lambda rival: -rival.rows)[:_RIVALS_NAMED]
    return Count(
        name=learned.name,
        rows=learned.rows,
        support=learned.support,
        explained=learned.explained,
        confidence=learned.confidence,
        why=learned.why,
        same=learned.same[:_RIVALS_NAMED],
        excluded=tuple(
            Rival(name=rival.name, rows=rival.rows, examples=tuple(map(_name, rival.examples[:ROWS_NAMED])))
            for rival in rivals
        ),
    )


def _alteration(found: Alteration) -> AlterationFound:
    return AlterationFound(
        source=found.source,
        provider=found.provider,
        model=found.model,
        mode=found.mode,
        code=found.code,
        says=found.words,
        rows=found.rows,
        hits=found.hits,
        reference=found.reference,
        reference_share=found.reference_share,
    )


def _name(key: Key) -> str:
    sample_id, turn, index = key
    return f"{sample_id}/{turn}/{index}"
