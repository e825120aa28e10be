"""The text-health facts of a slice of rows: columns in, columns out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.audit.blocks import Block, Bools, Ints
from toolkit.audit.health.characters import SCRIPTS, count_characters
from toolkit.audit.health.identity import answer_hashes, prompt_hashes
from toolkit.audit.health.languages import language_differs, scripts_of
from toolkit.audit.health.repetition import GRAM, find_repetition
from toolkit.audit.health.secrets import count_addresses, find_secrets
from toolkit.audit.health.wording import find_boilerplate, find_refusals, wording_of
from toolkit.columns import HEALTH_COLUMNS
from toolkit.phrases import Phrases

HEALTH_READS = ("reasoning", "content", "tool_calls", "messages", "tools", "notes")
"""Columns of the shard that `health_facts` reads, beside the ids."""

_SURROGATE_NOTE = "lone_surrogate"
_NEWLINE = pa.scalar("\n", pa.large_string())


def health_facts(
    columns: Mapping[str, pa.Array], ids: Block, has_ids: Bools, phrases: Phrases | None
) -> dict[str, pa.Array]:
    """Facts of `HEALTH_COLUMNS`.

    Args:
        columns: `HEALTH_READS` of the shard.
        ids: output_ids; null rows are empty.
        has_ids: Rows whose output_ids are not null.
        phrases: What refusals and boilerplate say; None: text health is off, and every fact is null.
    """
    if phrases is None:
        return {column.name: pa.nulls(len(has_ids), column.type) for column in HEALTH_COLUMNS}
    reasoning, content = (columns[name].cast(pa.large_string()) for name in ("reasoning", "content"))
    return {
        **_repetition_facts(ids, has_ids),
        **_character_facts(reasoning, content, columns["messages"]),
        **_wording_facts(reasoning, content, phrases),
        "lone_surrogates": _has_note(columns["notes"], _SURROGATE_NOTE),
        "answer_hash": answer_hashes(reasoning, content, columns["tool_calls"]),
        "prompt_hash": prompt_hashes(columns["messages"], columns["tools"]),
    }


def _repetition_facts(ids: Block, has_ids: Bools) -> dict[str, pa.Array]:
    found = find_repetition(ids)
    grams = np.maximum(ids.lengths - (GRAM - 1), 0)
    repeated = 1 - found.distinct_grams / np.maximum(grams, 1)
    return {
        "repeated_share": pa.array(repeated, mask=~(has_ids & (grams > 0))),
        "loop_ids": _ints(found.loop_ids, has_ids),
        "loop_period": _ints(found.loop_period, has_ids & (found.loop_ids > 0)),
        "loop_share": pa.array(found.loop_ids / np.maximum(ids.lengths, 1), mask=~(has_ids & (ids.lengths > 0))),
    }


def _character_facts(reasoning: pa.Array, content: pa.Array, messages: pa.Array) -> dict[str, pa.Array]:
    thoughts, answers = count_characters(reasoning), count_characters(content)
    every = np.ones(len(content), dtype=bool)
    facts = {
        "n_control_chars": _ints(thoughts.controls + answers.controls, every),
        "n_bidi_chars": _ints(thoughts.bidi + answers.bidi, every),
        "language_differs": language_differs(content, answers.letters, messages),
    }
    names = pa.array(SCRIPTS, pa.string())
    for part, letters in (("reasoning_", thoughts.letters), ("", answers.letters)):
        scripts = scripts_of(letters)
        told = scripts.first >= 0
        facts[f"{part}script"] = names.take(pa.array(scripts.first, mask=~told))
        if not part:
            facts["second_script_share"] = pa.array(scripts.second_share, mask=~told)
    return facts


def _wording_facts(reasoning: pa.Array, content: pa.Array, phrases: Phrases) -> dict[str, pa.Array]:
    wording = wording_of(phrases)
    joined = pc.binary_join_element_wise(pc.fill_null(reasoning, ""), pc.fill_null(content, ""), _NEWLINE)
    text = _series(joined)
    secrets = find_secrets(text)
    return {
        "refusal": find_refusals(content, wording),
        "boilerplate": pa.array(find_boilerplate(_series(pc.ascii_lower(joined)), wording)),
        "n_secrets": pa.array(secrets.counts.astype(np.int32)),
        "secret_kinds": pa.array([kinds or None for kinds in secrets.kinds], pa.string()),
        "n_email_addresses": pa.array(count_addresses(text).astype(np.int32)),
    }


def _has_note(notes: pa.Array, note: str) -> pa.Array:
    lists = pl.Series("notes", notes, dtype=pl.List(pl.String))
    return lists.list.contains(note).fill_null(False).to_arrow().cast(pa.bool_())


def _series(texts: pa.Array) -> pl.Series:
    return pl.Series("text", texts, dtype=pl.String)


def _ints(values: Ints, valid: Bools) -> pa.Array:
    return pa.array(values.astype(np.int32), mask=~valid)
