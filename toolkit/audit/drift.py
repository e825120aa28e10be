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
from toolkit.audit.fact_files import AT, Frame, collected
from toolkit.audit.learning import GROUP, is_sound
from toolkit.audit.samples import change_point
from toolkit.audit.tallies import mask_of
from toolkit.contract import Contract
from toolkit.findings import Finding
from toolkit.records import Evidence

MIN_STRENGTH = 25.0
"""Log-likelihood that a change of a share must gain: chance gives 5 to 10 over all places of 100,000 rows."""

MIN_GAP = 0.1
"""A share that moves by less is another mix of prompts."""

MAX_FINDINGS = 200
_PIECES = 16
_ROWS_AT_ONCE = 1 << 21


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


def find_drift(judged: Frame, contract: Contract) -> list[Finding]:
    """What changes within a group, at most `MAX_FINDINGS`, the largest groups first.

    Codes: `completion_convention_changed`, `reasoning_convention_changed`, `prompt_convention_changed`,
    `convention_differs_in_shard` (rows of one shard, or of one stretch of time, are counted otherwise than the rest),
    `trait_changed` (white space or JSON separators that texts had and no longer have, or the other way round),
    `share_changed` (finish reasons, contradicted rows, long answers; the mix of prompts may do that too: info).

    Args:
        judged: Frame of the judged facts, shard after shard.
        contract: What they were measured under.
    """
    numbered = judged.lazy().with_row_index(AT)
    counts = list(_counts(contract))
    found: list[Finding] = []
    for rows in _large_groups(numbered, counts):
        if len(found) >= MAX_FINDINGS:
            break
        rows = in_time(rows)
        for number, count in enumerate(counts):
            found += _drift_of_count(judged.lazy(), rows, number, count)
        for part in rows.partition_by("mode", maintain_order=True):
            found += _drift_of_shares(judged.lazy(), part)
    return found[:MAX_FINDINGS]


def in_time(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows in the order of the replies' own time; in the order in which they lie where a reply does not bear one."""
    return rows if rows["created"].null_count() else rows.sort("created", maintain_order=True)


# --- rows ---------------------------------------------------------------------------------------


def _large_groups(numbered: pl.LazyFrame, counts: Sequence[_Count]) -> Iterator[pl.DataFrame]:
    """The narrow rows of each group that is large enough, the largest first: some groups are read at a time."""
    sizes = collected(numbered.group_by(*GROUP).agg(pl.len().alias("_rows"), pl.col(AT).min()))
    sizes = sizes.filter(pl.col("_rows") >= 2 * MIN_SUPPORT).sort(["_rows", AT], descending=[True, False])
    sizes = sizes.drop(AT).with_row_index("_group")
    narrow = _narrow(numbered, counts)
    for some in _some_at_a_time(sizes):
        wanted = some.select("_group", *GROUP).lazy()
        rows = collected(narrow.join(wanted, on=list(GROUP), nulls_equal=True, maintain_order="left").drop(*GROUP))
        parts = rows.partition_by("_group", as_dict=True)
        for group in some["_group"]:
            yield parts.pop((group,))


def _some_at_a_time(sizes: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Lines of groups, so many that their rows are at most `_ROWS_AT_ONCE`, at least one."""
    first = held = 0
    for at, rows in enumerate(sizes["_rows"]):
        if at > first and held + rows > _ROWS_AT_ONCE:
            yield sizes[first:at]
            first, held = at, 0
        held += rows
    if first < len(sizes):
        yield sizes[first:]


def _narrow(numbered: pl.LazyFrame, counts: Sequence[_Count]) -> pl.LazyFrame:
    """Some 40 bytes of each row: when and where it came, which hypotheses explain it, and its flags."""
    hits = [
        pl.when(count.teaches & pl.col(count.observed).is_not_null())
        .then(mask_of([pl.col(count.observed) == h.difference for h in count.hypotheses]))
        .alias(f"_hits{number}")
        for number, count in enumerate(counts)
    ]
    reason = pl.col("finish_reason").str.to_lowercase()
    return numbered.select(
        *GROUP,
        AT,
        "created",
        pl.col("mode").cast(pl.Categorical),
        pl.col("shard").cast(pl.Categorical),
        "n_ids",
        "truncated",
        *(trait.column for trait in TRAITS),
        *hits,
        (reason == "length").alias("_length"),
        (reason == "tool_calls").alias("_tool"),
        (pl.col("evidence") == str(Evidence.CONTRADICTED)).alias("_bad"),
    )


# --- conventions ------------------------------------------------------------------------------


def _counts(contract: Contract) -> Iterator[_Count]:
    sound = is_sound()
    yield _Count("completion", "completion_tokens", "count_difference", completion_hypotheses(contract), sound)
    stated = sound & (pl.col("reasoning_tokens") > 0)
    yield _Count("reasoning", "reasoning_tokens", "reasoning_difference", reasoning_hypotheses(), stated)
    yield _Count("prompt", "prompt_tokens", "prompt_difference", prompt_hypotheses(contract), pl.lit(True))


def _drift_of_count(facts: pl.LazyFrame, group: pl.DataFrame, number: int, count: _Count) -> Iterator[Finding]:
    rows = group.select(AT, "shard", f"_hits{number}").drop_nulls(f"_hits{number}")
    if len(rows) < 2 * MIN_SUPPORT:
        return
    hits = _Hits(rows[f"_hits{number}"].to_numpy(), len(count.hypotheses))
    names = [hypothesis.name for hypothesis in count.hypotheses]
    switch = _switch(hits)
    if switch is not None:
        says = (
            f"{count.words}: from here on the provider {names[switch.after]}; before, it {names[switch.before]} "
            f"({switch.at:,} rows before, {len(rows) - switch.at:,} after)"
        )
        code = f"{count.code}_convention_changed"
        yield _finding(code, "warning", says, facts, rows[AT][switch.at], switch.rows)
        return
    yield from _odd_pieces(facts, rows, hits, names, count)


@dataclass(frozen=True, slots=True)
class _Hits:
    """Which hypothesis explains which row, a bit each: 4 bytes a row, however many hypotheses there are."""

    bits: npt.NDArray[np.uint32]
    hypotheses: int

    def of(self, hypothesis: int) -> Bools:
        """Rows that one hypothesis explains."""
        flags: Bools = self.bits >> np.uint32(hypothesis) & np.uint32(1) != 0
        return flags

    def most(self, rows: slice | npt.NDArray[np.int64]) -> int:
        """The hypothesis that explains most of these rows; of several the simplest."""
        some = _Hits(self.bits[rows], self.hypotheses)
        return int(np.argmax([int(some.of(i).sum()) for i in range(self.hypotheses)]))


def _switch(hits: _Hits) -> _Switch | None:
    """The place at which one hypothesis gives way to another; None where no two explain two stretches of time.

    Each must explain `MIN_SUPPORT` rows on its side that the other does not, and most of its side; of what the other
    alone explains at most a fifth may lie on the wrong side, else both hold all the time and nothing changes.
    """
    least, rows = MIN_SUPPORT, len(hits.bits)
    places = slice(least - 1, rows - least)
    before, after = (np.zeros(rows - 2 * least + 1, dtype=np.int32) for _ in range(2))
    for i in range(hits.hypotheses):
        counted = np.cumsum(hits.of(i), dtype=np.int32)
        np.maximum(before, counted[places], out=before)
        np.maximum(after, counted[-1] - counted[places], out=after)
    at = least + int(np.argmax(before + after))
    first, second = hits.most(slice(0, at)), hits.most(slice(at, None))
    if first == second:
        return None
    one, two = hits.of(first), hits.of(second)
    only_first, only_second = one & ~two, two & ~one
    for mine, theirs, side, explained in (
        (only_first, only_second, slice(0, at), one),
        (only_second, only_first, slice(at, None), two),
    ):
        telling = int(mine[side].sum())
        explains = int(explained[side].sum()) >= MIN_EXPLAINED_SHARE * len(explained[side])
        if telling < least or not explains or int(theirs[side].sum()) > MAX_RIVAL_SHARE * telling:
            return None
    return _Switch(at, first, second, int(only_second[at:].sum()))


def _odd_pieces(
    facts: pl.LazyFrame, rows: pl.DataFrame, hits: _Hits, names: Sequence[str], count: _Count
) -> Iterator[Finding]:
    """The first shard, else the first stretch of time, that is counted otherwise than the rest."""
    usual = hits.most(slice(None))
    for kind, piece in _pieces(rows):
        own = hits.most(piece)
        mine, theirs = (_Hits(hits.bits[piece], hits.hypotheses).of(i) for i in (own, usual))
        only_own, only_usual = mine & ~theirs, theirs & ~mine
        telling = int(only_own.sum())
        if telling >= MIN_SUPPORT and int(only_usual.sum()) <= MAX_RIVAL_SHARE * telling:
            says = (
                f"{count.words}: in this {kind} of {len(piece):,} rows the provider {names[own]}, "
                f"elsewhere it {names[usual]}"
            )
            at = int(piece[int(np.argmax(only_own))])
            yield _finding("convention_differs_in_shard", "warning", says, facts, rows[AT][at], telling)
            return


def _pieces(rows: pl.DataFrame) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    """Shards in the order in which they appear, then stretches of time: what they are, and the rows of each."""
    shard = rows["shard"].to_physical().to_numpy()
    order = np.argsort(shard, kind="stable")
    _, begins = np.unique(shard[order], return_index=True)
    pieces = np.split(order, begins[1:])
    if len(pieces) > 1:
        for piece in sorted(pieces, key=lambda piece: int(piece[0])):
            yield "shard", piece
    length = max(2 * MIN_SUPPORT, -(-len(rows) // _PIECES))
    for i in range(0, len(rows), length):
        yield "stretch of time", np.arange(i, min(i + length, len(rows)))


# --- shares -----------------------------------------------------------------------------------


def _drift_of_shares(facts: pl.LazyFrame, rows: pl.DataFrame) -> Iterator[Finding]:
    """Changes of single shares within one group and mode."""
    for trait in TRAITS:
        can = pl.col(trait.column).is_not_null() & (~pl.col("truncated") if trait.whole_only else pl.lit(True))
        yield from _share_change(facts, rows.filter(can), pl.col(trait.column), trait.words, "trait_changed")
    ended = rows.filter(pl.col("_length").is_not_null())
    yield from _share_change(facts, ended, pl.col("_length"), "answers cut at the cap", "share_changed")
    yield from _share_change(facts, ended, pl.col("_tool"), "answers that call tools", "share_changed")
    yield from _share_change(facts, rows, pl.col("_bad"), "rows that something contradicts", "share_changed")
    whole = rows.filter(pl.col("n_ids").is_not_null() & ~pl.col("truncated"))
    long = pl.col("n_ids") > pl.col("n_ids").median()
    yield from _share_change(facts, whole, long, "answers longer than this group's median", "share_changed")


def _share_change(facts: pl.LazyFrame, rows: pl.DataFrame, flag: pl.Expr, words: str, code: str) -> Iterator[Finding]:
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
    yield _finding(code, severity, says, facts, rows[AT][change.at], len(flags) - change.at)


_FOUND = ("source", "provider", "model", "mode", "shard", "sample_id", "turn", "sample_index", "created")


def _finding(code: str, severity: str, says: str, facts: pl.LazyFrame, at: int, count: int) -> Finding:
    """A finding that begins at row `at` of the dataset."""
    first = facts.select(_FOUND).slice(at, 1).collect().row(0, named=True)
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
