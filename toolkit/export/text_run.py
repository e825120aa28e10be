"""From a train set to conversations for a tool that takes text, and how many of them it would train on with our ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from toolkit.errors import ConfigError
from toolkit.export.conversations import Conversation, NotExpressibleError, conversation_of
from toolkit.export.output import check_replaceable
from toolkit.export.parity import ParityCheck
from toolkit.export.readers import TEXT_ONLY
from toolkit.export.report import ExportReport, Tally
from toolkit.export.run import ExportOptions, Run, begin, check_some, finish
from toolkit.export.train_set import TrainSet
from toolkit.export.window import Rows, take
from toolkit.store.published import replacing
from toolkit.wire.json import dump_json

NAME = "conversations.jsonl"


def export_text(
    train_set: TrainSet,
    output: Path,
    options: ExportOptions,
    parity: ParityCheck | None,
    advance: Callable[[int], None] = lambda _: None,
) -> ExportReport:
    """Write a train set's rows as conversations, and the report beside them. The same input gives the same bytes.

    Args:
        train_set: Every byte of it is held against its manifest while it is read.
        output: The folder; an earlier export in it is replaced.
        options: What is asked for; the cap of ids counts ours.
        parity: Compares rows; None where the contract is not at hand.
        advance: Told of rows as they are read.

    Raises:
        ConfigError: an option is wrong, the target reads ids, or `output` holds something that no export wrote.
        StoreError: as `export`.
    """
    if options.target not in TEXT_ONLY:
        raise ConfigError(f"{options.target}: reads ids, and needs no conversations")
    run = begin(train_set, options)
    with replacing(output, check_replaceable, doing="exporting") as fresh:
        with (fresh / NAME).open("wb") as file:
            for rows, texts in train_set.read_texts():
                for conversation in _chosen(run, rows, texts, parity):
                    file.write(dump_json(conversation.line).encode() + b"\n")
                advance(len(rows))
            check_some(run, train_set)
        return finish(run, fresh, train_set, None if parity is None else parity.report())


def _chosen(run: Run, rows: Rows, texts: pa.Table, parity: ParityCheck | None) -> list[Conversation]:
    """The conversations that are written, counted and some of them compared."""
    found: list[Conversation] = []
    lengths = rows.lengths.copy()
    for place, columns in enumerate(texts.to_pylist()):
        try:
            found.append(conversation_of(run.options.target, rows.names[place], columns))
        except NotExpressibleError as error:
            one = rows.slice(place, place + 1)
            tally = run.left_out.setdefault(error.reason, Tally())
            tally.add(1, len(one.ids), int(one.supervised()[0]))
            lengths[place] = 0
    # The cap takes the beginning of the order, so what is chosen of the expressible rows are their first.
    chosen = run.select(take(rows, lengths))
    found = found[: len(chosen)]
    if parity is not None:
        _compare(parity, chosen, found)
    return found


def _compare(parity: ParityCheck, chosen: Rows, conversations: list[Conversation]) -> None:
    for place, conversation in enumerate(conversations):
        if not parity.wants_more:
            return
        first, last = chosen.offsets[place : place + 2]
        ids = np.asarray(chosen.ids[first:last])
        parity.add(chosen.names[place], chosen.modes[place], conversation.messages, ids, int(chosen.prompt_len[place]))
