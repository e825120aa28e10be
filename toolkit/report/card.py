"""A dataset card for a merged set, as the Hugging Face hub reads it: a YAML head and Markdown. Pure.

The head tells the hub where the rows lie and of what types they are, so that `datasets.load_dataset` needs no code and
no guess, and holds the number of rows against what was written. The licence is the user's to state: answers of a model
come under the terms of that model and of whoever served it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from toolkit.columns import TRAIN_COLUMNS, Column
from toolkit.errors import StoreError
from toolkit.manifest import (
    MANIFEST_NAME,
    SHARDS_NAME,
    VALIDATION_NAME,
    DatasetInput,
    Manifest,
    OutputFile,
    SourceShare,
    marked_card,
)
from toolkit.report.counts import tally
from toolkit.report.doubts import NAME_LIMIT
from toolkit.report.markdown import bullets, code, prose, table
from toolkit.report.text import clean, fingerprint, number, quantity, share

_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
    (100_000_000, "10M<n<100M"),
    (1_000_000_000, "100M<n<1B"),
)
"""The hub's own names for sizes: below so many rows."""

_TYPES = {"double": "float64", "float": "float32"}
"""Arrow's names that the hub spells otherwise."""


def render_card(manifest: Manifest, *, manifest_sha256: str, sizes: Mapping[str, int]) -> str:
    """README.md of a train set's repository on the hub.

    Args:
        sizes: Bytes of each output file without compression, by its path: the hub wants to know how much memory it
            takes, and leaves out what it is told of rows where that is missing.

    Raises:
        StoreError: the manifest names a column that this version does not write.
    """
    columns = _columns(manifest)
    blocks = [
        "\n".join(_head(manifest, columns, sizes)),
        f"# Answers under contract {code(clean(manifest.contract, NAME_LIMIT))}, proved row by row",
        _summary(manifest),
        "## Load it",
        _LOADING,
        "## Who answered",
        _sources(manifest.sources),
        "## Where loss falls",
        _loss(manifest),
        "## How it was proved",
        *_proof(manifest),
        "## What was left out",
        *_left_out(manifest),
        "## Columns",
        table(
            ("column", "type", "what"),
            [[code(c.name), code(_feature(c.type)), prose(clean(_about(c), 200))] for c in columns],
        ),
        _made_with(manifest, manifest_sha256),
    ]
    return marked_card("\n\n".join(block for block in blocks if block) + "\n")


_LOADING = """```python
from datasets import load_dataset

rows = load_dataset("NAME_OF_THIS_REPOSITORY", split="train")
row = rows[0]
completion = row["input_ids"][row["prompt_len"] :]  # the ids that the model produced
```"""


def _summary(manifest: Manifest) -> str:
    totals = manifest.totals
    names = ", ".join(code(clean(made.name, NAME_LIMIT)) for made in manifest.inputs[:50]) or "no dataset"
    split = f", {number(totals.validation_rows)} of them for validation" if totals.validation_rows else ""
    return (
        f"{quantity(totals.written, 'row')}{split}, with {quantity(totals.ids, 'token id')}: "
        f"{number(totals.prompt_ids)} of prompts, {number(totals.supervised_ids)} that bear loss. "
        f"Merged from {names}; every row passed an audit of its ids."
    )


def _made_with(manifest: Manifest, manifest_sha256: str) -> str:
    return (
        f"Made by tokenproof {code(clean(manifest.tool_version, 40))}, seed {manifest.seed}; "
        f"{code(MANIFEST_NAME)} has sha256 {code(clean(manifest_sha256, 64))}."
    )


# --- the YAML head -------------------------------------------------------------------------------


def _head(manifest: Manifest, columns: Sequence[Column], sizes: Mapping[str, int]) -> Iterator[str]:
    """Only our own words and numbers stand here: nothing that came from outside could be read as YAML."""
    yield "---"
    yield "# license: state it here; the hub lists the names"
    yield "task_categories:"
    yield "- text-generation"
    yield "tags:"
    yield "- tokenproof"
    yield "size_categories:"
    yield f"- {_size(manifest.totals.written)}"
    yield "configs:"
    yield "- config_name: default"
    yield "  data_files:"
    splits = _splits(manifest)
    for name, folder, _ in splits:
        yield f"  - split: {name}"
        yield f"    path: {folder}/part-*.parquet"
    yield "dataset_info:"
    yield "  config_name: default"
    yield "  features:"
    for column in columns:
        yield f"  - name: {column.name}"
        yield f"    {_yaml(column.type)}"
    yield "  splits:"
    for name, _, files in splits:
        yield f"  - name: {name}"
        yield f"    num_bytes: {sum(sizes[file.path] for file in files)}"
        yield f"    num_examples: {sum(file.rows for file in files)}"
    yield "---"


def _splits(manifest: Manifest) -> list[tuple[str, str, Sequence[OutputFile]]]:
    """(name, folder, files) of each side that has files."""
    sides = (("train", SHARDS_NAME, manifest.outputs), ("validation", VALIDATION_NAME, manifest.validation_outputs))
    return [side for side in sides if side[2]]


def _columns(manifest: Manifest) -> list[Column]:
    known = {column.name: column for column in TRAIN_COLUMNS}
    unknown = [name for name in manifest.columns if name not in known]
    if unknown:
        raise StoreError(
            f"{MANIFEST_NAME}: columns: expected columns of a train set, found {clean(', '.join(unknown), 200)}"
        )
    return [known[name] for name in manifest.columns]


def _yaml(kind: pa.DataType) -> str:
    return f"list: {_name(kind.value_type)}" if pa.types.is_list(kind) else f"dtype: {_name(kind)}"


def _feature(kind: pa.DataType) -> str:
    return f"list of {_name(kind.value_type)}" if pa.types.is_list(kind) else _name(kind)


def _name(kind: pa.DataType) -> str:
    return _TYPES.get(str(kind), str(kind))


def _size(rows: int) -> str:
    return next((name for limit, name in _SIZES if rows < limit), "n>1B")


# --- the text ------------------------------------------------------------------------------------


def _about(column: Column) -> str:
    return f"{column.source}; null: {column.null_means}" if column.null_means else column.source


def _sources(sources: Sequence[SourceShare]) -> str:
    whole = sum(source.rows for source in sources)
    rows = [
        [
            prose(" · ".join(clean(n, NAME_LIMIT // 2) for n in (source.source, source.provider) if n is not None)),
            number(source.rows),
            share(source.rows, whole),
            number(source.prompt_ids),
            number(source.supervised_ids),
        ]
        for source in sorted(sources, key=lambda source: -source.rows)
    ]
    return table(("source", "rows", "share", "prompt ids", "supervised ids"), rows, right=(1, 2, 3, 4))


def _loss(manifest: Manifest) -> str:
    mask = manifest.mix.mask
    lines = [
        f"prompt: masked ({code('loss_mask')} is 0)",
        f"reasoning: {mask.reasoning}",
        "answer: supervised",
        f"the id that ends a complete answer: {mask.terminal}",
    ]
    if mask.window is not None:
        lines.append(f"rows without a supervised id among their first {quantity(mask.window, 'id')} are not here")
    return "\n".join(f"- {line}" for line in lines)


def _proof(manifest: Manifest) -> Iterator[str]:
    contract = f"{clean(manifest.contract, NAME_LIMIT)} {fingerprint(manifest.contract_sha256)}"
    yield (
        f"The ids of each row are those that an engine returned, or follow the tokens that a reply listed, or were "
        f"rebuilt from its text under contract {code(contract)} and agree in number with what the provider reported; "
        f"a second tokenizer makes the same ids of the same text. The column {code('ids_source')} says which. Rows "
        f"without such evidence are not here. Of rebuilt ids a count proves no more than their number: a model may "
        f"have sampled another split of the same text of the same length."
    )
    rows = [
        [
            code(clean(made.name, NAME_LIMIT)),
            number(made.rows),
            number(made.written),
            ", ".join(code(f"{clean(s.name, NAME_LIMIT)} {fingerprint(s.sha256)}") for s in made.suites[:20]),
            code(fingerprint(made.verdict_sha256)),
        ]
        for made in manifest.inputs
    ]
    yield table(("dataset", "audited rows", "rows here", "suites passed", "verdict"), rows, right=(1, 2))
    if manifest.proof is not None:
        suite, held = manifest.proof.suite, sum(result.success for result in manifest.proof.results)
        name = code(f"{clean(suite.name, NAME_LIMIT)} {fingerprint(suite.sha256)}")
        yield (
            f"The rows were measured as they were written, and held against suite {name}: {number(held)} of "
            f"{quantity(len(manifest.proof.results), 'expectation')} hold."
        )


def _left_out(manifest: Manifest) -> Iterator[str]:
    totals = manifest.totals
    if totals.rows == totals.written:
        yield "Nothing: every audited row is here."
        return
    yield f"{quantity(totals.rows - totals.written, 'row')} of {number(totals.rows)}: {prose(tally(totals.dropped))}."
    yield bullets("Quarantined, by expectation", _counted(totals.quarantined_by_expectation))
    lines = [f"{code(clean(made.name, NAME_LIMIT))}: {prose(tally(made.dropped))}" for made in _cut(manifest.inputs)]
    yield bullets("By dataset", lines) if len(manifest.inputs) > 1 else ""


def _cut(inputs: Sequence[DatasetInput]) -> list[DatasetInput]:
    return [made for made in inputs if any(made.dropped.values())][:50]


def _counted(by_name: Mapping[str, int]) -> list[str]:
    ordered = sorted(((rows, name) for name, rows in by_name.items() if rows), reverse=True)
    return [f"{code(clean(name, NAME_LIMIT))}: {quantity(rows, 'row')}" for rows, name in ordered[:50]]
