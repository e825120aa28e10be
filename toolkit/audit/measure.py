"""The kernel: one shard's rows in, one row of facts each. Pure, and without a loop over ids.

The text is encoded again, part by part and with another engine than rebuilt the ids, and compared with them. Rows on
which the fast engine disagrees, and a sample of the others, are judged by the referee, and their ids are decoded and
compared with the text's bytes. Ids that encoding the text gives need no decoding: encoders lose nothing.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.audit.blocks import Block, Bools, Ints, block_of_lists, equal_rows, joined_bytes, take_rows
from toolkit.audit.calibration import text_classes
from toolkit.audit.characters import count_replaced, end_in_cut_character, text_buffers, white_edges
from toolkit.audit.form_faults import FORM_READS, form_faults
from toolkit.audit.health.facts import HEALTH_READS, health_facts
from toolkit.audit.onpolicy import history_facts
from toolkit.audit.specials import TOOL_MARKERS, count_specials, ends_with_terminal, find_specials, outside_vocabulary
from toolkit.audit.texts import EncodeBatch, Texts, expected_bytes, expected_ids, has_text_without_place
from toolkit.audit.tools import tool_facts
from toolkit.audit.workers import cores
from toolkit.columns import FACTS_SCHEMA
from toolkit.contract import Contract
from toolkit.errors import ShardError
from toolkit.phrases import SHIPPED, Phrases
from toolkit.records import SOURCES_WITH_PROVIDERS, IdsSource, RebuildStatus
from toolkit.vocabulary import Vocabulary

_ROWS_PER_SLICE = 4_096
_SAMPLED = 1_024
"""One in so many agreeing rows is judged by the referee as well."""
_TOLD_BY = 3
"""Hexadecimal digits, the first of a row key, that choose them."""
_HEX = np.array([int(chr(byte), 16) if chr(byte) in string.hexdigits else byte % 16 for byte in range(256)])
"""What a byte counts for: of keys that are no hashes, whatever its letter gives."""


def measure(
    shard: pa.Table,
    contract: Contract,
    vocabulary: Vocabulary,
    *,
    shard_sha256: str,
    phrases: Phrases | None = SHIPPED,
) -> pa.Table:
    """Facts of every row.

    Args:
        shard: Rows of `SHARD_SCHEMA`.
        contract: The contract that the rows are held against.
        vocabulary: Its vocabulary.
        shard_sha256: Names the shard in the facts.
        phrases: What text health looks for; None switches text health off, and its facts are null.

    Returns:
        A table of `FACTS_SCHEMA`, one row for each row of `shard`, in the same order.

    Raises:
        ShardError: a column holds values that this version does not write.
    """

    def facts_of(part: tuple[int, pa.Table]) -> pa.Table:
        return measure_slice(part[1], part[0], contract, vocabulary, shard_sha256, phrases)

    tables = _in_order(facts_of, list(_slices(shard)), vocabulary)
    return pa.concat_tables(tables) if tables else FACTS_SCHEMA.empty_table()


def measure_slice(
    rows: pa.Table, first: int, contract: Contract, vocabulary: Vocabulary, sha256: str, phrases: Phrases | None
) -> pa.Table:
    """`measure` on one thread, of rows that begin at position `first` of their shard; all of it is held in memory.

    Raises:
        ShardError: as `measure`.
    """
    try:
        return _measure_slice(rows, first, contract, vocabulary, sha256, phrases)
    except (pl.exceptions.PolarsError, pa.ArrowException) as error:
        raise ShardError(f"shard {sha256[:16]}…: {str(error).splitlines()[0][:200]}") from None


def _slices(shard: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Slices that bound the memory of what is made from them."""
    for first in range(0, shard.num_rows, _ROWS_PER_SLICE):
        yield first, shard.slice(first, _ROWS_PER_SLICE)


def _in_order(
    facts_of: Callable[[tuple[int, pa.Table]], pa.Table], slices: Sequence[tuple[int, pa.Table]], vocabulary: Vocabulary
) -> list[pa.Table]:
    """Facts of all slices in their order, on all cores: encoders and arrays leave the interpreter to others."""
    if len(slices) < 2:
        return list(map(facts_of, slices))
    vocabulary.make_engines()
    with ThreadPoolExecutor(max_workers=min(len(slices), cores())) as pool:
        return list(pool.map(facts_of, slices))


def _measure_slice(
    rows: pa.Table, first: int, contract: Contract, vocabulary: Vocabulary, sha256: str, phrases: Phrases | None
) -> pa.Table:
    lists = _column(rows, "output_ids")
    if lists.flatten().null_count:
        raise ShardError(f"shard {sha256[:16]}…: output_ids: expected whole numbers, found null inside a list")
    ids = block_of_lists(lists)
    has_ids: Bools = _bools(pc.is_valid(lists))
    facts: dict[str, pa.Array] = {name: _column(rows, name) for name in FACTS_SCHEMA.names if name in rows.schema.names}
    facts["shard"] = pa.array([sha256] * len(rows), pa.string())
    facts["row_index"] = pa.array(np.arange(first, first + len(rows)), pa.int32())
    specials = find_specials(ids, contract)
    counts = count_specials(specials, ids, contract)
    truncated = _truncated(rows, ids, has_ids, contract)
    facts |= _id_facts(ids, has_ids, counts)
    facts["n_prompt_ids"] = pc.list_value_length(_column(rows, "prompt_ids"))
    facts["truncated"] = pa.array(truncated)
    columns = {name: _column(rows, name) for name in FORM_READS}
    facts["structure"] = form_faults(columns, ids, has_ids, specials, counts, truncated, vocabulary)
    facts |= _text_facts(rows, ids, has_ids, counts, truncated, contract, vocabulary)
    facts |= tool_facts(rows, truncated, contract, vocabulary.encode_batch)
    facts |= _differences(facts)
    facts |= history_facts(rows)
    facts["text_class"] = text_classes(rows)
    facts |= health_facts({name: _column(rows, name) for name in HEALTH_READS}, ids, has_ids, phrases)
    named = _bools(pc.is_valid(facts["provider"]))
    with_providers = pc.is_in(facts["source"], pa.array(sorted(SOURCES_WITH_PROVIDERS), pa.string()))
    facts["provider_matches_source"] = pa.array(named == _bools(with_providers))
    return pa.table([facts[name] for name in FACTS_SCHEMA.names], schema=FACTS_SCHEMA)


# --- ids ---------------------------------------------------------------------------------------


def _id_facts(ids: Block, has_ids: Bools, counts: dict[str, Ints]) -> dict[str, pa.Array]:
    some = ids.lengths > 0
    starts, ends = ids.starts, ids.starts + ids.lengths
    smallest, largest, last = (np.zeros(len(some), dtype=np.int64) for _ in range(3))
    if some.any():
        smallest[some] = np.minimum.reduceat(ids.ids, starts[some])
        largest[some] = np.maximum.reduceat(ids.ids, starts[some])
        last[some] = ids.ids[ends[some] - 1]
    none: Ints = np.zeros(len(some), dtype=np.int64)
    tool_calls = counts.get("call_begin", none)
    return {
        "n_ids": _ints(ids.lengths, has_ids),
        "last_id": _ints(last, some),
        "min_id": _ints(smallest, some),
        "max_id": _ints(largest, some),
        "n_terminal": _ints(counts["terminal"], has_ids),
        "n_end_think": _ints(counts["end_think"], has_ids),
        "end_think_at": _ints(counts["end_think_at"], counts["end_think_at"] >= 0),
        "n_begin_think": _ints(counts["begin_think"], has_ids),
        "n_tool_calls": _ints(tool_calls, has_ids),
        "n_tool_markers": _ints(sum((counts[name] for name in TOOL_MARKERS if name in counts), none), has_ids),
        "n_control_ids": _ints(counts["control"], has_ids),
    }


def _truncated(rows: pa.Table, ids: Block, has_ids: Bools, contract: Contract) -> Bools:
    """Whether each answer was cut. SGLang says `length` with a terminal at the cap: engine ids tell by themselves.

    A rebuild that closed a cut answer has also said that it is whole: the reasons stand above its word.
    """
    lengths = pa.array(sorted(contract.finish.length), pa.string())
    says_length = np.zeros(len(rows), dtype=bool)
    for name in ("finish_reason", "native_finish_reason"):
        lowered = pc.utf8_trim_whitespace(pc.utf8_lower(_column(rows, name)))
        says_length |= _bools(pc.is_in(lowered, lengths))
    status = _column(rows, "rebuild_status")
    rebuilt_open = _bools(pc.not_equal(status, str(RebuildStatus.COMPLETE)))
    source = pc.fill_null(_column(rows, "ids_source"), "")
    engine = _bools(pc.equal(source, str(IdsSource.ENGINE)))
    rebuilt = _bools(pc.equal(source, str(IdsSource.REBUILT)))
    told = np.where(rebuilt, rebuilt_open | says_length, says_length)
    cut: Bools = np.where(engine, ~ends_with_terminal(ids, contract), told)
    return np.where(has_ids, cut, says_length)


# --- text --------------------------------------------------------------------------------------


def _text_facts(
    rows: pa.Table,
    ids: Block,
    has_ids: Bools,
    counts: dict[str, Ints],
    truncated: Bools,
    contract: Contract,
    vocabulary: Vocabulary,
) -> dict[str, pa.Array]:
    """text_equal, reencode_equal and the facts about the text itself."""
    reasoning, content = _column(rows, "reasoning"), _column(rows, "content")
    texts = _texts_of(rows, ids, counts, truncated, contract)
    has_text = _bools(pc.or_(pc.is_valid(reasoning), pc.is_valid(content))) | _bools(
        pc.is_valid(_column(rows, "tool_calls"))
    )
    # The text of a tool section that was cut by the engine's cap is not known: parsers drop half a call.
    exact = _bools(pc.equal(pc.fill_null(_column(rows, "ids_source"), ""), str(IdsSource.REBUILT)))
    cut_tools = ~exact & truncated & (counts.get("section_begin", np.zeros(len(has_ids), dtype=np.int64)) > 0)
    comparable = has_ids & has_text & ~cut_tools & ~_has_raw_calls(rows, counts, contract)
    text_equal = np.zeros(len(rows), dtype=bool)
    reencode_equal = np.zeros(len(rows), dtype=bool)
    reencoded: Ints = np.zeros(len(rows), dtype=np.int64)
    modes = np.asarray(_column(rows, "mode").to_pylist(), dtype=object)
    for mode in contract.modes:
        chosen = np.flatnonzero(comparable & (modes == mode))
        if len(chosen):
            found = take_rows(ids, chosen)
            wanted = _take_texts(texts, chosen)
            placed = ~has_text_without_place(wanted, mode, contract)
            equal, reencoded[chosen], doubtful = _reencode(found, wanted, mode, vocabulary, rows, chosen)
            same = equal.copy()
            same[doubtful] = _decodes(found, wanted, doubtful, mode, vocabulary)
            text_equal[chosen] = same & placed
            reencode_equal[chosen] = equal & placed
    known_mode = np.isin(modes, list(contract.modes))
    parts = (reasoning, content)
    edges = {
        f"{part}_{edge}_space": found
        for part, column in (("reasoning", reasoning), ("content", content))
        for edge, found in zip(("leading", "trailing"), white_edges(column), strict=True)
    }
    return {
        "text_equal": pa.array(text_equal, mask=~(comparable & known_mode)),
        "reencode_equal": pa.array(reencode_equal, mask=~(comparable & known_mode)),
        "n_reencoded_ids": _ints(reencoded, comparable & known_mode),
        "n_replaced": pa.array(sum(count_replaced(column) for column in parts), pa.int32()),
        **edges,
    }


def _has_raw_calls(rows: pa.Table, counts: dict[str, Ints], contract: Contract) -> Bools:
    """Rows with calls of a form that servers do not return as it was written: nothing can be held against their ids."""
    if contract.raw_tools is None:
        return np.zeros(len(rows), dtype=bool)
    has_calls: Bools = _bools(pc.is_valid(_column(rows, "tool_calls")))
    return has_calls | (counts["call_begin"] + counts["raw_marker"] > 0)


def _texts_of(rows: pa.Table, ids: Block, counts: dict[str, Ints], truncated: Bools, contract: Contract) -> Texts:
    """Text columns, and how the output ends: by the rules for rebuilt ids, by the ids themselves for others."""
    exact = _bools(pc.equal(pc.fill_null(_column(rows, "ids_source"), ""), str(IdsSource.REBUILT)))
    content, calls = _column(rows, "content"), _column(rows, "tool_calls")
    has_calls = _bools(pc.is_valid(calls))
    answered = _bools(pc.greater(pc.fill_null(pc.binary_length(content), 0), 0)) | has_calls
    some = ids.lengths > 0
    last = np.full(len(some), -1, dtype=np.int64)
    last[some] = ids.ids[(ids.starts + ids.lengths)[some] - 1]
    own = np.where(ends_with_terminal(ids, contract), last, -1)
    stop, tool = (contract.id_of(contract.terminals[outcome]) for outcome in ("stop", "tool_calls"))
    ruled = np.where(truncated, -1, np.where(has_calls, tool, stop))
    return Texts(
        reasoning=_column(rows, "reasoning"),
        content=content,
        tool_calls=calls,
        cut=truncated,
        end_think=np.where(exact, ~truncated | answered, counts["end_think"] > 0),
        terminal=np.where(exact, ruled, own),
    )


def _take_texts(texts: Texts, chosen: Ints) -> Texts:
    if len(chosen) == len(texts):
        return texts
    index = pa.array(chosen)
    return Texts(
        reasoning=texts.reasoning.take(index),
        content=texts.content.take(index),
        tool_calls=texts.tool_calls.take(index),
        cut=texts.cut[chosen],
        end_think=texts.end_think[chosen],
        terminal=texts.terminal[chosen],
    )


def _decodes(ids: Block, texts: Texts, chosen: Ints, mode: str, vocabulary: Vocabulary) -> Bools:
    """Whether the ids of the chosen rows stand for the very bytes of their text."""
    found = take_rows(ids, chosen)
    decoded = joined_bytes(found, vocabulary.token_bytes)
    wanted = expected_bytes(_take_texts(texts, chosen), mode, vocabulary.contract)
    equal = _bools(pc.equal(decoded, wanted))
    if len(unlike := np.flatnonzero(~equal & texts.cut[chosen])):
        index = pa.array(unlike)
        equal = equal.copy()
        equal[unlike] = end_in_cut_character(decoded.take(index), wanted.take(index))
    return equal & _all_inside(found, vocabulary.contract)


def _all_inside(ids: Block, contract: Contract) -> Bools:
    """Whether every id of a row is in the vocabulary."""
    inside = np.ones(len(ids.lengths), dtype=bool)
    inside[ids.rows_at(outside_vocabulary(ids, contract))] = False
    return inside


def _reencode(
    found: Block, wanted: Texts, mode: str, vocabulary: Vocabulary, rows: pa.Table, chosen: Ints
) -> tuple[Bools, Ints, Ints]:
    """Whether the text gives these ids, how many it gives, and which rows the referee judged: those where the fast
    engine says no, and a sample."""
    given = expected_ids(wanted, mode, vocabulary.contract, vocabulary.encode_batch)
    equal, lengths = equal_rows(found, given), given.lengths
    keys = _column(rows, "row_key").take(pa.array(chosen))
    sampled = _sampled(keys)
    judged = np.flatnonzero(~equal | sampled)
    if len(judged):
        referee: EncodeBatch = vocabulary.referee.encode_batch
        again = expected_ids(_take_texts(wanted, judged), mode, vocabulary.contract, referee)
        equal[judged] = equal_rows(take_rows(found, judged), again)
        lengths = lengths.copy()
        lengths[judged] = again.lengths
    return equal, lengths, judged


def _sampled(keys: pa.Array) -> Bools:
    """A sample that depends on nothing but the row keys: one in `_SAMPLED` of those that begin as hashes do, and all
    that are too short to tell."""
    letters, edges = text_buffers(keys)
    sampled = np.diff(edges) < _TOLD_BY
    numbers = np.zeros(np.count_nonzero(~sampled), dtype=np.int64)
    for place in range(_TOLD_BY):
        numbers = numbers * 16 + _HEX[letters[edges[:-1][~sampled] + place]]
    sampled[~sampled] = numbers % _SAMPLED == 0
    return sampled


# --- small things --------------------------------------------------------------------------------


def _differences(facts: dict[str, pa.Array]) -> dict[str, pa.Array]:
    return {
        "count_difference": pc.subtract(facts["n_ids"], facts["completion_tokens"]),
        "reasoning_difference": pc.subtract(facts["end_think_at"], facts["reasoning_tokens"]),
        "prompt_difference": pc.subtract(facts["n_prompt_ids"], facts["prompt_tokens"]),
    }


def _column(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name)
    chunks = column.chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def _bools(array: pa.Array) -> Bools:
    values: Bools = pc.fill_null(array, False).to_numpy(zero_copy_only=False).astype(bool)
    return values


def _ints(values: Ints, valid: Bools) -> pa.Array:
    return pa.array(values.astype(np.int32), mask=~valid)
