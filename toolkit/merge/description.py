"""What a merge says of itself: the manifest, from what was read and what was written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from toolkit import __version__
from toolkit.columns import TRAIN_SCHEMA
from toolkit.gate import OpenGate
from toolkit.manifest import (
    SHARDS_NAME,
    VALIDATION_NAME,
    DatasetInput,
    Manifest,
    SourceShare,
    SuiteInput,
    Totals,
)
from toolkit.merge.reading import Read
from toolkit.merge.selection import Dropped
from toolkit.merge.writing import Written
from toolkit.mix import MergeSettings


def describe(
    gates: Sequence[OpenGate],
    read: Sequence[Read],
    left_out: Sequence[Mapping[Dropped, int]],
    written: Written,
    mix: MergeSettings,
    repeated: int,
) -> Manifest:
    """The manifest, its proof still missing.

    Args:
        gates: By name.
        read: What each of them held.
        left_out: What of each was left out of the whole, by reason.
        written: What went into the parts.
        mix: The options.
        repeated: Rows of a request that another row has too.
    """
    inputs = tuple(map(lambda g, r, o: _describe_input(g, r, o, written), gates, read, left_out))
    by_expectation: Counter[str] = Counter()
    for tally in read:
        by_expectation.update(tally.quarantined_by_expectation)
    return Manifest(
        tool_version=__version__,
        seed=mix.seed,
        mix=mix,
        columns=tuple(TRAIN_SCHEMA.names),
        contract=gates[0].verdict.contract,
        contract_sha256=gates[0].verdict.contract_sha256,
        inputs=inputs,
        sources=tuple(
            SourceShare(source=source, provider=provider, **_numbers(written.by_source[source, provider]))
            for source, provider in sorted(written.by_source, key=lambda group: (group[0], group[1] or ""))
        ),
        totals=Totals(
            rows=sum(tally.rows for tally in read),
            written=written.total("rows"),
            validation_rows=written.total("validation_rows"),
            dropped={str(reason): sum(i.dropped[str(reason)] for i in inputs) for reason in Dropped},
            quarantined_by_expectation=dict(sorted(by_expectation.items())),
            repeated=repeated,
            ids=written.total("ids"),
            prompt_ids=written.total("prompt_ids"),
            supervised_ids=written.total("supervised_ids"),
        ),
        outputs=tuple(written.outputs[SHARDS_NAME]),
        validation_outputs=tuple(written.outputs[VALIDATION_NAME]),
    )


def _numbers(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: counts[name] for name in ("rows", "validation_rows", "ids", "prompt_ids", "supervised_ids")}


def _describe_input(gate: OpenGate, read: Read, left_out: Mapping[Dropped, int], written: Written) -> DatasetInput:
    counts = written.by_dataset.get(gate.dataset.name, Counter())
    return DatasetInput(
        name=gate.dataset.name,
        verdict_sha256=gate.verdict_sha256,
        kernel_version=gate.verdict.kernel_version,
        prompts_sha256=gate.verdict.prompts_sha256,
        allowed_providers=gate.verdict.allowed_providers or (),
        quarantine_sha256=gate.verdict.quarantine_sha256,
        suites=tuple(SuiteInput(name=run.name, path=run.path, sha256=run.sha256) for run in gate.verdict.suites),
        shards=tuple(sorted(gate.live.shards, key=lambda shard: shard.path)),
        rows=read.rows,
        written=counts["rows"],
        validation_rows=counts["validation_rows"],
        ids=counts["ids"],
        prompt_ids=counts["prompt_ids"],
        supervised_ids=counts["supervised_ids"],
        dropped={str(reason): read.dropped[reason] + left_out[reason] for reason in Dropped},
        quarantined_by_expectation=read.quarantined_by_expectation,
    )
