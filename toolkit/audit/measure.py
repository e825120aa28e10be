"""The kernel: one shard's rows in, one row of facts each. Pure, and without a loop over rows or ids.

The text is held against the ids twice, and neither time with the engine that rebuilt them: the ids are
decoded and compared with the text's bytes, and the text is encoded again part by part and compared with
the ids. Rows on which the fast engine disagrees, and a sample of the others, are judged by the referee.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.audit.blocks import Block, Bools, Ints, block_of_lists, equal_rows, joined_bytes, take_rows
from toolkit.audit.texts import EncodeBatch, Texts, expected_bytes, expected_ids, has_text_without_place
from toolkit.contract import Contract
from toolkit.errors import ShardError
from toolkit.records import FACTS_SCHEMA, SOURCES_WITH_PROVIDERS, IdsSource, RebuildStatus
from toolkit.vocabulary import Vocabulary

_ROWS_PER_SLICE = 4_096
_SAMPLED = 1_024
"""One in so many agreeing rows is judged by the referee as well."""


def measure(shard: pa.Table, contract: Contract, vocabulary: Vocabulary, *, shard_sha256: str) -> pa.Table:
    """Facts of every row.

    Args:
        shard: Rows of `SHARD_SCHEMA`.
        contract: The contract that the rows are held against.
        vocabulary: Its vocabulary.
        shard_sha256: Names the shard in the facts.

    Returns:
        A table of `FACTS_SCHEMA`, one row for each row of `shard`, in the same order.

    Raises:
        ShardError: a column holds values that this version does not write.
    """
    try:
        tables = [_measure_slice(part, first, contract, vocabulary, shard_sha256) for first, part in _slices(shard)]
    except (pl.exceptions.PolarsError, pa.ArrowException) as error:
        raise ShardError(f"shard {shard_sha256[:16]}…: {str(error).splitlines()[0][:200]}") from None
    return pa.concat_tables(tables) if tables else FACTS_SCHEMA.empty_table()


def _slices(shard: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Slices that bound the memory of what is made from them."""
    for first in range(0, shard.num_rows, _ROWS_PER_SLICE):
        yield first, shard.slice(first, _ROWS_PER_SLICE)


def _measure_slice(rows: pa.Table, first: int, contract: Contract, vocabulary: Vocabulary, sha256: str) -> pa.Table:
    lists = _column(rows, "output_ids")
    if lists.flatten().null_count:
        raise ShardError(f"shard {sha256[:16]}…: output_ids: expected whole numbers, found null inside a list")
    ids = block_of_lists(lists)
    has_ids: Bools = _bools(pc.is_valid(lists))
    facts: dict[str, pa.Array] = {name: _column(rows, name) for name in FACTS_SCHEMA.names if name in rows.schema.names}
    facts["shard"] = pa.array([sha256] * len(rows), pa.string())
    facts["row_index"] = pa.array(np.arange(first, first + len(rows)), pa.int32())
    counts = _count_specials(ids, contract)
    truncated = _truncated(rows, ids, has_ids, contract)
    facts |= _id_facts(ids, has_ids, counts)
    facts["n_prompt_ids"] = pc.list_value_length(_column(rows, "prompt_ids"))
    facts["truncated"] = pa.array(truncated)
    facts["structure"] = _structure(rows, ids, has_ids, counts, truncated, contract)
    facts |= _text_facts(rows, ids, has_ids, counts, truncated, contract, vocabulary)
    facts |= _differences(facts)
    named = _bools(pc.is_valid(facts["provider"]))
    with_providers = pc.is_in(facts["source"], pa.array(sorted(SOURCES_WITH_PROVIDERS), pa.string()))
    facts["provider_matches_source"] = pa.array(named == _bools(with_providers))
    return pa.table([facts[name] for name in FACTS_SCHEMA.names], schema=FACTS_SCHEMA)


# --- ids ---------------------------------------------------------------------------------------


def _count_specials(ids: Block, contract: Contract) -> dict[str, Ints]:
    """Per row: how many special ids of each kind, and where thinking ends (−1: nowhere).

    Special ids are few, so they are found once and everything else works on those positions alone.
    """
    rows = len(ids.lengths)
    at = np.flatnonzero((ids.ids >= contract.vocabulary.base_tokens) & (ids.ids < contract.vocab_size))
    value, row = ids.ids[at], ids.rows_at(at)

    def count(wanted: frozenset[int] | set[int]) -> Ints:
        return np.bincount(row[np.isin(value, list(wanted))], minlength=rows).astype(np.int64)

    begin = {contract.id_of(contract.think.begin)} if contract.think else set()
    end = {contract.id_of(contract.think.end)} if contract.think else set()
    end_at = np.full(rows, -1, dtype=np.int64)
    if end:
        is_end = np.isin(value, list(end))
        with_end, index = np.unique(row[is_end], return_index=True)
        end_at[with_end] = at[is_end][index] - ids.starts[with_end]
    counts = {
        "terminal": count(contract.terminal_ids),
        "begin_think": count(begin),
        "end_think": count(end),
        "end_think_at": end_at,
        "control": np.bincount(row, minlength=rows).astype(np.int64) - count(contract.output_ids() | begin),
    }
    if contract.tools is not None:
        form = contract.tools
        names = ("section_begin", "section_end", "call_begin", "call_between", "call_end")
        for name, spelling in zip(
            names, (form.section_begin, form.section_end, form.call[0], form.call[2], form.call[4]), strict=True
        ):
            counts[name] = count({contract.id_of(spelling)})
    return counts


def _id_facts(ids: Block, has_ids: Bools, counts: dict[str, Ints]) -> dict[str, pa.Array]:
    some = ids.lengths > 0
    starts, ends = ids.starts, ids.starts + ids.lengths
    smallest, largest, last = (np.zeros(len(some), dtype=np.int64) for _ in range(3))
    if some.any():
        smallest[some] = np.minimum.reduceat(ids.ids, starts[some])
        largest[some] = np.maximum.reduceat(ids.ids, starts[some])
        last[some] = ids.ids[ends[some] - 1]
    tool_calls = counts.get("call_begin", np.zeros(len(some), dtype=np.int64))
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
        "n_control_ids": _ints(counts["control"], has_ids),
    }


def _ends_with_terminal(ids: Block, contract: Contract) -> Bools:
    """Whether the last id of each row is a terminal."""
    some = ids.lengths > 0
    ended = np.zeros(len(some), dtype=bool)
    ended[some] = np.isin(ids.ids[(ids.starts + ids.lengths)[some] - 1], list(contract.terminal_ids))
    return ended


def _truncated(rows: pa.Table, ids: Block, has_ids: Bools, contract: Contract) -> Bools:
    """Whether each answer was cut. SGLang says `length` with a terminal at the cap: engine ids tell by themselves."""
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
    cut: Bools = np.where(engine, ~_ends_with_terminal(ids, contract), np.where(rebuilt, rebuilt_open, says_length))
    return np.where(has_ids, cut, says_length)


def _structure(
    rows: pa.Table, ids: Block, has_ids: Bools, counts: dict[str, Ints], truncated: Bools, contract: Contract
) -> pa.Array:
    """The first thing that the contract's form forbids."""
    complete = ~truncated
    thinks = np.isin(
        np.asarray(_column(rows, "mode").to_pylist(), dtype=object),
        [name for name, mode in contract.modes.items() if mode.thinks],
    ) & (contract.think is not None)
    engine = _bools(pc.equal(pc.fill_null(_column(rows, "ids_source"), ""), str(IdsSource.ENGINE)))
    outside = np.zeros(len(has_ids), dtype=bool)
    strange = np.flatnonzero((ids.ids < 0) | (ids.ids >= contract.vocab_size))
    outside[ids.rows_at(strange)] = True
    ended = _ends_with_terminal(ids, contract)
    opens_tools = counts.get("section_begin", np.zeros(len(has_ids), dtype=np.int64)) > 0
    begins_inside = counts["begin_think"] > (1 if contract.think_open_in == "completion" else 0)
    checks: list[tuple[str, Bools]] = [
        ("empty", ids.lengths == 0),
        ("id_outside_vocabulary", outside),
        ("control_id_inside", counts["control"] > 0),
        ("begin_think_inside", begins_inside),
        ("think_in_instant_mode", ~thinks & (counts["end_think"] + counts["begin_think"] > 0)),
        ("end_think_repeated", counts["end_think"] > 1),
        ("end_think_missing", thinks & complete & (counts["end_think"] == 0) & ~(engine & opens_tools)),
        ("false_terminal", truncated & (counts["terminal"] > 0)),
        ("terminal_missing", complete & (counts["terminal"] == 0)),
        ("terminal_repeated", complete & (counts["terminal"] > 1)),
        ("terminal_inside", complete & (counts["terminal"] == 1) & ~ended),
        ("tools_unbalanced", _tools_unbalanced(counts, truncated)),
    ]
    codes = np.select([has_ids & wrong for _, wrong in checks], [code for code, _ in checks], default="")
    return pc.if_else(pc.equal(pa.array(codes, pa.string()), ""), pa.scalar(None, pa.string()), pa.array(codes))


def _tools_unbalanced(counts: dict[str, Ints], truncated: Bools) -> Bools:
    """Section and call ids that do not pair up; a cut answer may leave one of each open."""
    if "section_begin" not in counts:
        return np.zeros(len(truncated), dtype=bool)
    slack = truncated.astype(np.int64)
    sections = counts["section_begin"] - counts["section_end"]
    calls = counts["call_begin"] - counts["call_end"]
    betweens = counts["call_begin"] - counts["call_between"]
    wrong: Bools = (counts["section_begin"] > 1) | (sections < 0) | (sections > slack)
    wrong |= (calls < 0) | (calls > slack) | (betweens < 0) | (betweens > slack)
    wrong |= (counts["call_begin"] > 0) & (counts["section_begin"] == 0)
    return wrong


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
    comparable = has_ids & has_text & ~cut_tools
    text_equal = np.zeros(len(rows), dtype=bool)
    reencode_equal = np.zeros(len(rows), dtype=bool)
    modes = np.asarray(_column(rows, "mode").to_pylist(), dtype=object)
    for mode in contract.modes:
        chosen = np.flatnonzero(comparable & (modes == mode))
        if len(chosen):
            found = take_rows(ids, chosen)
            wanted = _take_texts(texts, chosen)
            decoded = joined_bytes(found, vocabulary.token_bytes)
            same = pc.equal(decoded, expected_bytes(wanted, mode, contract))
            placed = ~has_text_without_place(wanted, mode, contract)
            text_equal[chosen] = _bools(same) & _all_inside(found, contract) & placed
            reencode_equal[chosen] = _reencode(found, wanted, mode, contract, vocabulary, rows, chosen) & placed
    known_mode = np.isin(modes, list(contract.modes))
    parts = (reasoning, content)
    replaced = [pc.count_substring(pc.fill_null(column, ""), "\ufffd") for column in parts]
    edges = {
        name: sum(_bools(pc.match_substring_regex(pc.fill_null(c, ""), pattern)).astype(np.int64) for c in parts)
        for name, pattern in (("leading_spaces", r"^\s"), ("trailing_spaces", r"\s$"))
    }
    return {
        "text_equal": pa.array(text_equal, mask=~(comparable & known_mode)),
        "reencode_equal": pa.array(reencode_equal, mask=~(comparable & known_mode)),
        "n_replaced": pc.add(*replaced).cast(pa.int32()),
        **{name: _ints(np.asarray(count), has_text) for name, count in edges.items()},
    }


def _texts_of(rows: pa.Table, ids: Block, counts: dict[str, Ints], truncated: Bools, contract: Contract) -> Texts:
    """Text columns, and how the output ends: by the rules for rebuilt ids, by the ids themselves for others."""
    exact = _bools(pc.equal(pc.fill_null(_column(rows, "ids_source"), ""), str(IdsSource.REBUILT)))
    content, calls = _column(rows, "content"), _column(rows, "tool_calls")
    has_calls = _bools(pc.is_valid(calls))
    answered = _bools(pc.greater(pc.fill_null(pc.binary_length(content), 0), 0)) | has_calls
    some = ids.lengths > 0
    last = np.full(len(some), -1, dtype=np.int64)
    last[some] = ids.ids[(ids.starts + ids.lengths)[some] - 1]
    own = np.where(_ends_with_terminal(ids, contract), last, -1)
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
    index = pa.array(chosen)
    return Texts(
        reasoning=texts.reasoning.take(index),
        content=texts.content.take(index),
        tool_calls=texts.tool_calls.take(index),
        cut=texts.cut[chosen],
        end_think=texts.end_think[chosen],
        terminal=texts.terminal[chosen],
    )


def _all_inside(ids: Block, contract: Contract) -> Bools:
    """Whether every id of a row is in the vocabulary."""
    inside = np.ones(len(ids.lengths), dtype=bool)
    inside[ids.rows_at(np.flatnonzero((ids.ids < 0) | (ids.ids >= contract.vocab_size)))] = False
    return inside


def _reencode(
    found: Block,
    wanted: Texts,
    mode: str,
    contract: Contract,
    vocabulary: Vocabulary,
    rows: pa.Table,
    chosen: Ints,
) -> Bools:
    """Whether the text gives these ids, by the fast engine; the referee decides where it says no, and on a sample."""
    equal = equal_rows(found, expected_ids(wanted, mode, contract, vocabulary.encode_batch))
    keys = _column(rows, "row_key").take(pa.array(chosen))
    sampled = np.asarray(_sampled(keys), dtype=bool)
    judged = np.flatnonzero(~equal | sampled)
    if len(judged):
        referee: EncodeBatch = vocabulary.referee.encode_batch
        again = expected_ids(_take_texts(wanted, judged), mode, contract, referee)
        equal[judged] = equal_rows(take_rows(found, judged), again)
    return equal


def _sampled(keys: pa.Array) -> list[bool]:
    """A sample that depends on nothing but the row keys."""
    tail = pl.Series(keys.cast(pa.large_string()), dtype=pl.String).str.slice(0, 8)
    numbers = tail.str.to_integer(base=16, strict=False).fill_null(0)
    return (numbers % _SAMPLED == 0).to_list()


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
