"""What a row's text should look like in ids: the same layout as the rebuild's, over whole columns.

The rebuild lays out one reply at a time; this module lays out a table, with another engine, so that the
two can be held against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.audit.blocks import Block, Bools, Ints, constant_block, gather_rows, side_by_side
from toolkit.contract import Contract
from toolkit.engines import Ids, Offsets

EncodeBatch = Callable[[Sequence[str]], tuple[Ids, Offsets]]

_CALLS = pl.List(pl.Struct({"id": pl.String, "name": pl.String, "arguments": pl.String}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The text columns of rows that share one mode.

    Attributes:
        reasoning, content, tool_calls: Columns of the shard; null where absent.
        cut: The answer ends with the last part that began.
        end_think: Whether the id that ends thinking is in the output.
        terminal: The terminal id of each row; −1 where there is none.
    """

    reasoning: pa.Array
    content: pa.Array
    tool_calls: pa.Array
    cut: Bools
    end_think: Bools
    terminal: Ints

    def __len__(self) -> int:
        return len(self.cut)


@dataclass(frozen=True, slots=True)
class _Calls:
    """All calls of all rows, in order: `row[i]` is the row of call i."""

    row: Ints
    id: list[str]
    arguments: list[str]
    open: Bools


@dataclass(frozen=True, slots=True)
class _Piece:
    """One stretch of the layout: text in each row, an id in some rows, or the tool section."""

    text: pa.Array | None = None
    token_id: int = -1
    present: Bools | None = None
    tools: bool = False
    terminal: bool = False


def expected_bytes(texts: Texts, mode: str, contract: Contract) -> pa.Array:
    """The row's whole text as bytes, special ids spelled out (large_binary)."""
    columns = [_piece_bytes(piece, texts, contract) for piece in _pieces(texts, mode, contract)]
    return pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.large_binary()))


def has_text_without_place(texts: Texts, mode: str, contract: Contract) -> Bools:
    """Rows with text in a part for which the mode's layout has no place, such as reasoning in instant mode."""
    output = contract.mode(mode).output
    parts = {"{reasoning}": texts.reasoning, "{content}": texts.content, "{tools}": texts.tool_calls}
    found = np.zeros(len(texts), dtype=bool)
    for part, column in parts.items():
        if part not in output:
            found |= _is_there(column)
    return found


def expected_ids(texts: Texts, mode: str, contract: Contract, encode: EncodeBatch) -> Block:
    """The ids that the row's text gives, part by part."""
    blocks: list[Block] = []
    waiting: list[pa.Array] = []

    def encode_waiting() -> None:
        """Neighbouring stretches of text are one text to the tokenizer."""
        if waiting:
            joined = waiting[0] if len(waiting) == 1 else pc.binary_join_element_wise(*waiting, "")
            blocks.append(_encoded(joined.to_pylist(), encode))
            waiting.clear()

    for piece in _pieces(texts, mode, contract):
        if piece.text is not None:
            waiting.append(piece.text)
            continue
        encode_waiting()
        if piece.tools:
            blocks.append(_tool_block(_calls_of(texts), len(texts), texts.cut, contract, encode))
        elif piece.terminal:
            there = texts.terminal >= 0
            blocks.append(Block(texts.terminal[there].astype(np.int32), there.astype(np.int64)))
        elif piece.present is not None:
            blocks.append(constant_block(piece.token_id, piece.present))
    encode_waiting()
    return side_by_side(blocks)


def _pieces(texts: Texts, mode: str, contract: Contract) -> list[_Piece]:
    """The mode's layout, each piece with the rows in which it stands."""
    output = contract.mode(mode).output
    parts = {"{reasoning}": texts.reasoning, "{content}": texts.content, "{tools}": texts.tool_calls}
    rows = len(texts)
    last = np.zeros(rows, dtype=np.int64)
    for at, piece in enumerate(output):
        if piece in parts:
            last[_is_there(parts[piece])] = at + 1
    last[~texts.cut] = len(output)
    end_think = contract.think.end if contract.think is not None else None
    pieces = []
    for at, piece in enumerate(output):
        present: Bools = last > at
        if piece in ("{reasoning}", "{content}"):
            pieces.append(_Piece(text=pc.fill_null(parts[piece], "")))
        elif piece == "{tools}":
            pieces.append(_Piece(tools=True))
        elif piece == "{terminal}":
            pieces.append(_Piece(terminal=True))
        elif piece in contract.special:
            present = texts.end_think if piece == end_think else present
            pieces.append(_Piece(token_id=contract.id_of(piece), present=present))
        else:
            pieces.append(_Piece(text=pc.if_else(pa.array(present), piece, "")))
    return pieces


def _piece_bytes(piece: _Piece, texts: Texts, contract: Contract) -> pa.Array:
    if piece.text is not None:
        return piece.text.cast(pa.large_binary())
    spelled = {token_id: spelling for spelling, token_id in contract.special.items()}
    if piece.tools:
        return _tool_texts(_calls_of(texts), len(texts), texts.cut, contract).cast(pa.large_binary())
    if piece.terminal:
        names = pa.array([spelled.get(int(t), "") for t in sorted(contract.terminal_ids)])
        index = np.searchsorted(np.array(sorted(contract.terminal_ids)), np.maximum(texts.terminal, 0))
        index = np.minimum(index, len(names) - 1)
        chosen = pc.if_else(pa.array(texts.terminal >= 0), names.take(pa.array(index)), "")
        return chosen.cast(pa.large_binary())
    return pc.if_else(pa.array(piece.present), spelled[piece.token_id], "").cast(pa.large_binary())


def _is_there(column: pa.Array) -> Bools:
    there: Bools = (
        pc.fill_null(pc.greater(pc.binary_length(column), 0), False).to_numpy(zero_copy_only=False).astype(bool)
    )
    return there


def _encoded(texts: Sequence[str], encode: EncodeBatch) -> Block:
    ids, offsets = encode(texts)
    return Block(ids.view(np.int32), np.subtract(offsets[1:], offsets[:-1], dtype=np.int64, casting="unsafe"))


# --- tool sections -------------------------------------------------------------------------------


def frame_of_calls(column: pa.Array) -> pl.DataFrame:
    """All calls of a JSON column, in order, decoded by polars: row, id, name, arguments; null strings are empty."""
    if column.null_count == len(column):
        return pl.DataFrame(schema={"row": pl.Int64, "id": pl.String, "name": pl.String, "arguments": pl.String})
    texts = pl.Series("calls", column.cast(pa.large_string()), dtype=pl.String)
    return (
        pl.DataFrame({"row": np.arange(len(column)), "calls": texts})
        .filter(pl.col("calls").is_not_null())
        .with_columns(pl.col("calls").str.json_decode(_CALLS))
        .explode("calls")
        .unnest("calls")
        .with_columns(pl.col("id", "name", "arguments").fill_null(""))
    )


def _calls_of(texts: Texts) -> _Calls:
    frame = frame_of_calls(texts.tool_calls)
    row = frame["row"].to_numpy().astype(np.int64)
    is_last = np.append(row[1:] != row[:-1], True) if len(row) else np.zeros(0, dtype=bool)
    return _Calls(
        row=row, id=frame["id"].to_list(), arguments=frame["arguments"].to_list(), open=is_last & texts.cut[row]
    )


def _section_edges(calls: _Calls, rows: int, cut: Bools) -> tuple[Bools, Bools]:
    """In which rows a section begins, and in which it is closed."""
    begins = np.zeros(rows, dtype=bool)
    begins[calls.row] = True
    return begins, begins & ~cut


def _tool_block(calls: _Calls, rows: int, cut: Bools, contract: Contract, encode: EncodeBatch) -> Block:
    form = contract.tools
    if form is None or not len(calls.row):
        return Block(np.zeros(0, np.int32), np.zeros(rows, np.int64))
    begin, between, close = (contract.id_of(form.call[i]) for i in (0, 2, 4))
    every = np.ones(len(calls.row), dtype=bool)
    each = side_by_side(
        [
            constant_block(begin, every),
            _encoded(calls.id, encode),
            constant_block(between, every),
            _encoded(calls.arguments, encode),
            constant_block(close, ~calls.open),
        ]
    )
    begins, closes = _section_edges(calls, rows, cut)
    return side_by_side(
        [
            constant_block(contract.id_of(form.section_begin), begins),
            gather_rows(each, calls.row, rows),
            constant_block(contract.id_of(form.section_end), closes),
        ]
    )


def _tool_texts(calls: _Calls, rows: int, cut: Bools, contract: Contract) -> pa.Array:
    form = contract.tools
    if form is None or not len(calls.row):
        return pa.array([""] * rows, pa.large_string())
    begin, between, close = (form.call[i] for i in (0, 2, 4))
    begins, closes = _section_edges(calls, rows, cut)
    frame = pl.DataFrame({"row": calls.row, "id": calls.id, "arguments": calls.arguments, "open": calls.open})
    joined = frame.group_by("row", maintain_order=True).agg(
        pl.concat_str(
            pl.lit(begin),
            "id",
            pl.lit(between),
            "arguments",
            pl.when("open").then(pl.lit("")).otherwise(pl.lit(close)),
        )
        .str.join("")
        .alias("text")
    )
    sections = pl.DataFrame({"row": np.arange(rows), "begins": begins, "closes": closes}).join(
        joined, on="row", how="left"
    )
    column = sections.select(
        pl.concat_str(
            pl.when("begins").then(pl.lit(form.section_begin)).otherwise(pl.lit("")),
            pl.col("text").fill_null(""),
            pl.when("closes").then(pl.lit(form.section_end)).otherwise(pl.lit("")),
        ).alias("text")
    )["text"]
    return column.to_arrow()
