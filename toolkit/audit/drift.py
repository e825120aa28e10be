"""Drift: what of a provider changes within a run, and where that begins.

A provider may switch engines in the middle of a night. Learned over everything, its way of counting is then `unknown`
and nothing says why; its shares are an average of two things that never were. Rows are put in the order of time (the
replies' own `created`, else the order of the shards) and the place is sought that divides them best.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from toolkit.audit.alterations import MAX_RATIO, MIN_REFERENCE_SHARE, TRAITS
from toolkit.audit.blocks import Bools
from toolkit.audit.conventions import (
    MAX_RIVAL_SHARE,
    MIN_EXPLAINED_SHARE,
    MIN_SUPPORT,
    Hypothesis,
    completion_hypotheses,
    prompt_hypotheses,
    reasoning_hypotheses,
)
from toolkit.audit.evidence import GROUP, is_sound
from toolkit.audit.samples import change_point
from toolkit.contract import Contract
from toolkit.findings import Finding
from toolkit.records import Evidence

MIN_STRENGTH = 25.0
"""Log-likelihood that a change of a share must gain: chance gives 5 to 10 over all places of 100,000 rows."""

MIN_GAP = 0.1
"""A share that moves by less is another mix of prompts."""

MAX_FINDINGS = 200
_PIECES = 16


@dataclass(frozen=True, slots=True)
class _Count:
    """One kind of count: code of its finding, words, the difference it is learned from, which rows can teach it."""

    code: str
    words: str
    observed: str
    hypotheses: Sequence[Hypothesis]
    teaches: pl.Expr


@dataclass(frozen=True, slots=True)
class _Switch:
    """From row `at` on, `after` explains the counts, no longer `before`."""

    at: int
    before: int
    after: int
    rows: int


def find_drift(judged: pl.DataFrame, contract: Contract) -> list[Finding]:
    """What changes within a group, at most `MAX_FINDINGS`, the largest groups first.

    Codes: `completion_convention_changed`, `reasoning_convention_changed`, `prompt_convention_changed`,
    `convention_differs_in_shard` (rows of one shard, or of one stretch of time, are counted otherwise than the rest),
    `trait_changed` (white space or JSON separators that texts had and no longer have, or the other way round),
    `share_changed` (finish reasons, contradicted rows, long answers; the mix of prompts may do that too: info).

    Args:
        judged: Frame of the judged facts, shard after shard.
        contract: What they were measured under.
    """
    found: list[Finding] = []
    numbered = judged.with_row_index("_at")
    groups = sorted(numbered.partition_by(*GROUP, maintain_order=True), key=len, reverse=True)
    for group in groups:
        if len(group) < 2 * MIN_SUPPORT or len(found) >= MAX_FINDINGS:
            continue
        rows = in_time(group)
        for count in _counts(contract):
            found += _drift_of_count(rows, count)
        for part in rows.partition_by("mode", maintain_order=True):
            found += _drift_of_shares(part)
    return found[:MAX_FINDINGS]


def in_time(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows in the order of the replies' own time; in the order in which they lie where a reply does not bear one."""
    return rows if rows["created"].null_count() else rows.sort("created", maintain_order=True)


# --- conventions ------------------------------------------------------------------------------


def _counts(contract: Contract) -> Iterator[_Count]:
    sound = is_sound()
    yield _Count("completion", "completion_tokens", "count_difference", completion_hypotheses(contract), sound)
    stated = sound & (pl.col("reasoning_tokens") > 0)
    yield _Count("reasoning", "reasoning_tokens", "reasoning_difference", reasoning_hypotheses(), stated)
    yield _Count("prompt", "prompt_tokens", "prompt_difference", prompt_hypotheses(contract), pl.lit(True))


def _drift_of_count(group: pl.DataFrame, count: _Count) -> Iterator[Finding]:
    rows = group.filter(count.teaches & pl.col(count.observed).is_not_null())
    if len(rows) < 2 * MIN_SUPPORT:
        return
    hits = _hits(rows, count)
    names = [hypothesis.name for hypothesis in count.hypotheses]
    switch = _switch(hits)
    if switch is not None:
        says = (
            f"{count.words}: from here on the provider {names[switch.after]}; before, it {names[switch.before]} "
            f"({switch.at:,} rows before, {len(rows) - switch.at:,} after)"
        )
        yield _finding(f"{count.code}_convention_changed", "warning", says, rows, switch.at, switch.rows)
        return
    yield from _odd_pieces(rows, hits, names, count)


def _hits(rows: pl.DataFrame, count: _Count) -> Bools:
    """Rows × hypotheses: which explains which."""
    frame = rows.select(
        (pl.col(count.observed) == h.difference).fill_null(False).alias(str(i)) for i, h in enumerate(count.hypotheses)
    )
    return frame.to_numpy().astype(bool)


def _switch(hits: Bools) -> _Switch | None:
    """The place at which one hypothesis gives way to another; None where no two explain two stretches of time.

    Each must explain `MIN_SUPPORT` rows on its side that the other does not, and most of its side; of what the other
    alone explains at most a fifth may lie on the wrong side, else both hold all the time and nothing changes.
    """
    least = MIN_SUPPORT
    before = np.cumsum(hits, axis=0, dtype=np.int64)
    after = before[-1] - before
    places = slice(least - 1, len(hits) - least)
    at = least + int(np.argmax(before[places].max(axis=1) + after[places].max(axis=1)))
    first, second = int(np.argmax(before[at - 1])), int(np.argmax(after[at - 1]))
    if first == second:
        return None
    only_first, only_second = hits[:, first] & ~hits[:, second], hits[:, second] & ~hits[:, first]
    for mine, theirs, side, hypothesis in (
        (only_first, only_second, slice(0, at), first),
        (only_second, only_first, slice(at, None), second),
    ):
        telling = int(mine[side].sum())
        explains = int(hits[side, hypothesis].sum()) >= MIN_EXPLAINED_SHARE * len(hits[side])
        if telling < least or not explains or int(theirs[side].sum()) > MAX_RIVAL_SHARE * telling:
            return None
    return _Switch(at, first, second, int(only_second[at:].sum()))


def _odd_pieces(rows: pl.DataFrame, hits: Bools, names: Sequence[str], count: _Count) -> Iterator[Finding]:
    """The first shard, else the first stretch of time, that is counted otherwise than the rest."""
    usual = int(np.argmax(hits.sum(axis=0)))
    shards = rows["shard"].to_numpy()
    length = max(2 * MIN_SUPPORT, -(-len(rows) // _PIECES))
    by_shard = rows.with_row_index("_i").group_by("shard", maintain_order=True).agg("_i")["_i"].to_list()
    pieces = [("shard", np.asarray(piece)) for piece in by_shard if len(piece) < len(shards)]
    pieces += [("stretch of time", np.arange(i, min(i + length, len(rows)))) for i in range(0, len(rows), length)]
    for kind, piece in pieces:
        own = int(np.argmax(hits[piece].sum(axis=0)))
        only_own, only_usual = hits[piece, own] & ~hits[piece, usual], hits[piece, usual] & ~hits[piece, own]
        telling = int(only_own.sum())
        if telling >= MIN_SUPPORT and int(only_usual.sum()) <= MAX_RIVAL_SHARE * telling:
            says = (
                f"{count.words}: in this {kind} of {len(piece):,} rows the provider {names[own]}, "
                f"elsewhere it {names[usual]}"
            )
            at = int(piece[int(np.argmax(only_own))])
            yield _finding("convention_differs_in_shard", "warning", says, rows, at, telling)
            return


# --- shares -----------------------------------------------------------------------------------


def _drift_of_shares(rows: pl.DataFrame) -> Iterator[Finding]:
    """Changes of single shares within one group and mode."""
    for trait in TRAITS:
        can = pl.col(trait.column).is_not_null() & (~pl.col("truncated") if trait.whole_only else pl.lit(True))
        yield from _share_change(rows.filter(can), pl.col(trait.column), trait.words, "trait_changed")
    reason = pl.col("finish_reason").str.to_lowercase()
    ended = rows.filter(pl.col("finish_reason").is_not_null())
    yield from _share_change(ended, reason == "length", "answers cut at the cap", "share_changed")
    yield from _share_change(ended, reason == "tool_calls", "answers that call tools", "share_changed")
    bad = pl.col("evidence") == str(Evidence.CONTRADICTED)
    yield from _share_change(rows, bad, "rows that something contradicts", "share_changed")
    whole = rows.filter(pl.col("n_ids").is_not_null() & ~pl.col("truncated"))
    long = pl.col("n_ids") > pl.col("n_ids").median()
    yield from _share_change(whole, long, "answers longer than this group's median", "share_changed")


def _share_change(rows: pl.DataFrame, flag: pl.Expr, words: str, code: str) -> Iterator[Finding]:
    flags: npt.NDArray[np.bool_] = rows.select(flag.fill_null(False).alias("flag"))["flag"].to_numpy().astype(bool)
    change = change_point(flags, MIN_SUPPORT)
    if change is None or change.strength < MIN_STRENGTH:
        return
    low, high = sorted((change.before, change.after))
    vanishes = high >= MIN_REFERENCE_SHARE and low <= MAX_RATIO * high
    if high - low < MIN_GAP and not (code == "trait_changed" and vanishes):
        return
    severity = "warning" if code == "trait_changed" and vanishes else "info"
    says = (
        f"{words}: {change.before:.1%} of {change.at:,} before, {change.after:.1%} of {len(flags) - change.at:,} after"
    )
    if severity == "info":
        says += "; another kind of prompts from here on may explain that"
    yield _finding(code, severity, says, rows, change.at, len(flags) - change.at)


def _finding(code: str, severity: str, says: str, rows: pl.DataFrame, at: int, count: int) -> Finding:
    """A finding that begins at row `at` of one group's rows."""
    first = rows.row(at, named=True)
    return Finding(
        code=code,
        severity=severity,
        says=says,
        source=first["source"],
        provider=first["provider"],
        model=first["model"],
        mode=first["mode"] if code in ("trait_changed", "share_changed") else None,
        shard=first["shard"],
        row=f"{first['sample_id']}/{first['turn']}/{first['sample_index']}",
        created=first["created"],
        rows=count,
    )
