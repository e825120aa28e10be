"""Whether a train set is what its manifest says, and whether what that was made of still stands.

`verify` reads every file again: its bytes are held against the manifest, its rows are counted and measured anew, and
the suite of table `train` judges what was measured. Merge measures the rows as it writes them, and asks here for the
same judgement before a train set gets its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from toolkit.audit.suite import Suite
from toolkit.columns import TRAIN_FACTS_SCHEMA, TRAIN_SCHEMA
from toolkit.contract import Contract
from toolkit.errors import GateClosed, StoreError
from toolkit.gate import miscounted
from toolkit.manifest import SHARDS_NAME, Manifest, OutputFile, Proof, Proved, SuiteInput, check_sums, foreign_files
from toolkit.masks import mask_form
from toolkit.mix import MergeSettings
from toolkit.records import ExpectationResult, Severity
from toolkit.split import labels_of
from toolkit.store.files import sha256_of
from toolkit.train_parts import MEASURED_COLUMNS, TRAIN, VALIDATION, MeasuredPart, Measuring, measure_part
from toolkit.train_suite import read_train_suite

SUITE_NAME = "train-set"
"""The shipped suite of train sets."""

_THREADS = 2
_COUNTED = ["dataset", "source", "provider", "split"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the files of a train set hold.

    Attributes:
        faults: What is not as the manifest says, a sentence each.
        results: Of the suite; empty where the files could not be measured.
    """

    faults: tuple[str, ...]
    results: tuple[ExpectationResult, ...]

    @property
    def failed(self) -> list[ExpectationResult]:
        """Critical expectations that do not hold."""
        return [r for r in self.results if r.severity is Severity.CRITICAL and not r.success]

    @property
    def warnings(self) -> list[ExpectationResult]:
        """Others that do not hold."""
        return [r for r in self.results if r.severity is not Severity.CRITICAL and not r.success]


def measuring_of(contract: Contract, mix: MergeSettings, *, split: bool) -> Measuring:
    """What the parts of a train set are measured by.

    Raises:
        ConfigError: the mask options do not fit the contract.
    """
    return Measuring(contract=contract, form=mask_form(contract, mix.mask), seed=mix.seed, split=split)


def prove_rows(manifest: Manifest, parts: Sequence[MeasuredPart], suite: Path) -> Manifest:
    """The manifest with the proof of the rows that were just written.

    Args:
        manifest: What the train set says of itself.
        parts: Its files, measured, in the manifest's order.
        suite: Of table `train`.

    Raises:
        SuiteError: the suite cannot be checked as written, or judges another table.
        StoreError: the files are not what the manifest says.
        GateClosed: the rows do not pass the suite.
    """
    judged = read_train_suite(suite)
    found = judge(parts, manifest, judged)
    if found.faults:
        raise StoreError("\n".join(f"the train set: {fault}" for fault in found.faults))
    if found.failed:
        reasons = [told(result) for result in found.failed]
        raise GateClosed("\n".join(["the train set does not pass its suite:", *(f"  - {r}" for r in reasons)]), reasons)
    return replace(manifest, proof=proof_of(judged, suite, found.results))


def proof_of(suite: Suite, path: Path, results: Sequence[ExpectationResult]) -> Proof:
    """Results as the manifest keeps them."""
    return Proof(
        suite=SuiteInput(name=suite.name, path=path.name, sha256=suite.sha256),
        results=tuple(
            Proved(
                id=result.id,
                severity=result.severity,
                success=result.success,
                element_count=result.element_count,
                unexpected_count=result.unexpected_count,
            )
            for result in results
        ),
    )


def told(result: ExpectationResult) -> str:
    """A result that does not hold, in a sentence."""
    if result.error is not None:
        return f"{result.id}: could not be evaluated: {result.error}"
    count = f"{result.unexpected_count:,} of {result.element_count:,} rows: " if result.unexpected_count else ""
    examples = [str(example.get("value")) for example in result.examples[:3]]
    seen = f" (found {', '.join(examples)})" if examples else ""
    return f"{result.id}: {count}{result.fault or result.description}{seen}"


def examine(
    folder: Path,
    manifest: Manifest,
    contract: Contract,
    suite: Suite,
    advance: Callable[[int], None] = lambda _: None,
) -> Found:
    """Hold every byte and every row of a train set against its manifest.

    Args:
        folder: The train set.
        manifest: What it says of itself.
        contract: The contract that it names, as its file is now.
        suite: Judges the facts of the rows; of table `train`.
        advance: Told of rows as they are read.

    Raises:
        SuiteError: the suite cannot be checked as written, or judges another table.
        ConfigError: the mask options do not fit the contract.
    """
    faults = [
        f"{path}: lies in the train set, but the manifest does not name it" for path in foreign_files(folder, manifest)
    ]
    own = tuple(_own_faults(manifest))
    measuring = measuring_of(contract, manifest.mix, split=bool(manifest.validation_outputs))
    parts: list[MeasuredPart] = []
    with ThreadPoolExecutor(_THREADS) as pool:
        outputs = [*manifest.outputs, *manifest.validation_outputs]
        for output, part in zip(outputs, pool.map(lambda o: _read_part(folder, o, measuring), outputs), strict=True):
            advance(output.rows)
            if isinstance(part, str):
                faults.append(part)
            else:
                parts.append(part)
    faults += _strangers(parts, manifest)
    if faults or not parts:
        return Found(faults=(*own, *(faults or ["the manifest names no file"])), results=())
    found = judge(parts, manifest, suite)
    return replace(found, faults=(*own, *found.faults))


def judge(parts: Sequence[MeasuredPart], manifest: Manifest, suite: Suite) -> Found:
    """Hold what was measured of all parts of a train set, at least one, against its manifest and a suite.

    Raises:
        SuiteError: the suite cannot be checked as written, or judges another table.
    """
    from toolkit.audit.gx.evaluate import evaluate

    facts = pa.concat_tables([part.facts for part in parts])
    faults = [*_strangers(parts, manifest), *_order_faults(parts), *_count_faults(facts, manifest)]
    if manifest.validation_outputs:
        both = _on_both_sides(facts, parts)
        place = TRAIN_FACTS_SCHEMA.get_field_index("prompt_on_both_sides")
        facts = facts.set_column(place, TRAIN_FACTS_SCHEMA.field(place), pa.array(both))
    return Found(faults=tuple(faults), results=believed(evaluate(suite, facts).results))


def believed(results: Sequence[ExpectationResult]) -> tuple[ExpectationResult, ...]:
    """Results, of which those do not hold that speak against themselves: their counts do not bear them out, or none of
    the critical expectations of rows looked at a single one. The gate of an audit says the same."""
    judging = [result for result in results if result.severity is Severity.CRITICAL and result.scope == "row"]
    idle = bool(judging) and not any(result.element_count for result in judging)
    return tuple(_believed(result, idle=idle) for result in results)


def _believed(result: ExpectationResult, *, idle: bool) -> ExpectationResult:
    if not result.success:
        return result
    if idle and result.severity is Severity.CRITICAL:
        return replace(result, success=False, error="no critical expectation of the suite looked at a single row")
    if miscounted(result):
        return replace(result, success=False, error="it says that it holds, but its own counts say that it does not")
    return result


def _own_faults(manifest: Manifest) -> Iterator[str]:
    """What of a manifest does not follow from the rest of it."""
    try:
        check_sums(manifest)
    except StoreError as error:
        yield str(error)
    if manifest.proof is None:
        yield "the manifest holds no proof of the rows that were written"
        return
    for result in manifest.proof.results:
        if result.severity is Severity.CRITICAL and not result.success:
            yield f"the manifest's own proof says that {result.id} does not hold"


# --- one file -----------------------------------------------------------------------------------------


def _read_part(folder: Path, output: OutputFile, measuring: Measuring) -> MeasuredPart | str:
    """One file, measured; a sentence where it is not what the manifest says."""
    path = folder / output.path
    try:
        found = sha256_of(path)
        if found != output.sha256:
            return f"{output.path}: expected sha256 {output.sha256[:16]}…, found {found[:16]}…: its bytes were changed"
        file = pq.ParquetFile(path, page_checksum_verification=True)
        if not file.schema_arrow.equals(TRAIN_SCHEMA):
            return f"{output.path}: expected the columns of a train set of this version, found others"
        # The texts are proved by the file's sha256; of those only messages are read, and only where a split asks.
        train = file.read(columns=[*MEASURED_COLUMNS, *(["messages"] if measuring.split else [])])
    except StoreError as error:
        return f"{output.path}: {error}"
    except (pa.ArrowException, OSError) as error:
        return f"{output.path}: cannot be read as Parquet: {str(error).splitlines()[0][:200]}"
    if train.num_rows != output.rows or not output.rows:
        return f"{output.path}: expected {output.rows:,} rows, found {train.num_rows:,}"
    try:
        return measure_part(train, output.path, side_of(output.path), measuring)
    except StoreError as error:
        return str(error)


def side_of(path: str) -> str:
    """The side of the split that a file of a train set lies on."""
    return TRAIN if path.partition("/")[0] == SHARDS_NAME else VALIDATION


# --- all files ----------------------------------------------------------------------------------------


def _strangers(parts: Sequence[MeasuredPart], manifest: Manifest) -> Iterator[str]:
    """Parts with rows of a dataset, shard or contract that the manifest does not name."""
    named = {(i.name, shard.sha256) for i in manifest.inputs for shard in i.shards}
    for part in parts:
        for dataset, shard, contract in part.owners:
            if (dataset, shard) not in named:
                yield (
                    f"{part.path}: has rows of dataset {dataset!r}, shard {shard[:16]}…, "
                    "which the manifest does not name"
                )
                break
            if contract != manifest.contract:
                yield f"{part.path}: expected rows of contract {manifest.contract} only, found {contract!r}"
                break


def _order_faults(parts: Sequence[MeasuredPart]) -> Iterator[str]:
    """Rows stand in the order of their hash, within a file and from one to the next."""
    before: dict[str, MeasuredPart] = {}
    for part in parts:
        earlier = before.get(part.side)
        if not part.ascending or (earlier is not None and part.first < earlier.last):
            yield f"{part.path}: its rows do not stand in the order of sha256(seed + row_key)"
        before[part.side] = part


def _count_faults(facts: pa.Table, manifest: Manifest) -> Iterator[str]:
    """What the manifest counts otherwise than the rows do."""
    frame = pl.DataFrame(pl.from_arrow(facts.select([*_COUNTED, "n_ids", "n_prompt_ids", "n_supervised"])))
    counted = frame.group_by(_COUNTED).agg(
        rows=pl.len(),
        ids=pl.col("n_ids").cast(pl.Int64).sum(),
        prompt_ids=pl.col("n_prompt_ids").cast(pl.Int64).sum(),
        supervised_ids=pl.col("n_supervised").cast(pl.Int64).sum(),
    )
    by_dataset: dict[str, Counter[str]] = {}
    by_source: dict[tuple[str, str | None], Counter[str]] = {}
    for dataset, source, provider, split, *numbers in counted.iter_rows():
        sums = Counter(dict(zip(("rows", "ids", "prompt_ids", "supervised_ids"), numbers, strict=True)))
        sums["validation_rows"] = sums["rows"] if split == "validation" else 0
        by_dataset.setdefault(dataset, Counter()).update(sums)
        by_source.setdefault((source, provider), Counter()).update(sums)
    for one in manifest.inputs:
        said = {"rows": one.written, "validation_rows": one.validation_rows, "ids": one.ids,
                "prompt_ids": one.prompt_ids, "supervised_ids": one.supervised_ids}  # fmt: skip
        yield from _differences(f"dataset {one.name}", said, by_dataset.pop(one.name, Counter()))
    for share in manifest.sources:
        said = {"rows": share.rows, "validation_rows": share.validation_rows, "ids": share.ids,
                "prompt_ids": share.prompt_ids, "supervised_ids": share.supervised_ids}  # fmt: skip
        name = f"source {share.source}" + (f"/{share.provider}" if share.provider is not None else "")
        yield from _differences(name, said, by_source.pop((share.source, share.provider), Counter()))
    yield from (
        f"rows of source {source}/{provider}, which the manifest does not name" for source, provider in by_source
    )
    totals = manifest.totals
    said = {"rows": totals.written, "validation_rows": totals.validation_rows, "ids": totals.ids,
            "prompt_ids": totals.prompt_ids, "supervised_ids": totals.supervised_ids}  # fmt: skip
    whole: Counter[str] = Counter()
    for share in manifest.sources:
        whole.update({"rows": share.rows, "validation_rows": share.validation_rows, "ids": share.ids,
                      "prompt_ids": share.prompt_ids, "supervised_ids": share.supervised_ids})  # fmt: skip
    yield from _differences("totals", said, whole)


def _differences(name: str, said: dict[str, int], found: Counter[str]) -> Iterator[str]:
    for key, expected in said.items():
        if found[key] != expected:
            yield f"{name}: {key}: the manifest says {expected:,}, its rows give {found[key]:,}"


def _on_both_sides(facts: pa.Table, parts: Sequence[MeasuredPart]) -> npt.NDArray[np.bool_]:
    """Rows whose prompt stands on both sides of the split."""
    openings = np.concatenate([part.openings for part in parts if part.openings is not None])
    samples = pc.replace_substring_regex(facts["id"], pattern=r"/[^/]*/[^/]*$", replacement="")
    frame = pl.DataFrame({"opening": openings, "dataset": pl.from_arrow(facts["dataset"]),
                          "sample_id": pl.from_arrow(samples), "split": pl.from_arrow(facts["split"])})  # fmt: skip
    frame = frame.with_columns(pl.Series("label", labels_of(frame)))
    sides = frame.select((pl.col("split").n_unique().over("label") > 1).alias("both"))
    return np.asarray(sides["both"].to_numpy(), np.bool_)
