"""Calibration: how often our rules give an engine's own ids from its text, and two sources side by side.

Where a server gave ids, its text is rebuilt by the same rules as the text of a server that gives none. What comes out
otherwise is the error that a count cannot see, at least: it shows the splits that were sampled, and nothing of what a
provider does to text.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.audit.conventions import wilson_interval
from toolkit.audit.fact_files import Frame, collected
from toolkit.findings import Calibration, CalibrationClass, ProbeComparison
from toolkit.records import IdsSource

TOOLS, CJK, DIGITS, CODE, SPACES, PROSE = "tools", "cjk", "digits", "code", "spaces", "prose"
CLASSES = (TOOLS, CODE, CJK, DIGITS, SPACES, PROSE)
"""Values of the fact `text_class`."""

_TEXTS = ("reasoning", "content")
_READ_CHARACTERS = 500
"""A text's class is that of the beginnings of its parts: reading on would cost more than it tells."""

_MAX_PAIRS = 100


def text_classes(rows: pa.Table) -> pa.Array:
    """The class of each row's text; null for rows whose ids are not the engine's, which no calibration looks at.

    Args:
        rows: Columns `reasoning`, `content`, `tool_calls` and `ids_source` of a shard.

    Returns:
        string: `tools` (it calls one), `cjk` (3 of 10 characters are Han, Kana or Hangul), `code` (a fenced block),
        `digits` (2 of 10 characters), `spaces` (1 of 10 stands in runs of three or more), else `prose`; the first
        that holds.
    """
    by_engine = pc.fill_null(pc.equal(rows["ids_source"], str(IdsSource.ENGINE)), False)
    at = np.flatnonzero(by_engine.to_numpy())
    if not len(at):
        return pa.nulls(rows.num_rows, pa.string())
    own = rows.select([*_TEXTS, "tool_calls"]).filter(by_engine)
    begun = [pc.utf8_slice_codeunits(pc.fill_null(own[part], ""), 0, _READ_CHARACTERS) for part in _TEXTS]
    texts = pc.binary_join_element_wise(*begun, "\n")
    calls = pc.is_valid(own["tool_calls"])
    frame = pl.DataFrame([pl.Series("_text", texts), pl.Series("_calls", calls)])
    characters = pl.col("_text").str.len_chars()
    counted = {
        CJK: (pl.col("_text").str.count_matches(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]"), 0.3),
        DIGITS: (pl.col("_text").str.count_matches(r"\p{N}"), 0.2),
        SPACES: (pl.col("_text").str.count_matches(r"\s\s\s") * 3, 0.1),
    }
    holds = {name: count >= share * characters for name, (count, share) in counted.items()}
    holds |= {TOOLS: pl.col("_calls"), CODE: pl.col("_text").str.contains("```", literal=True)}
    name = pl.lit(PROSE)
    for code in (SPACES, DIGITS, CODE, CJK, TOOLS):
        name = pl.when(holds[code]).then(pl.lit(code)).otherwise(name)
    classes: npt.NDArray[np.object_] = np.full(rows.num_rows, None, dtype=object)
    classes[at] = frame.select(name.alias("name"))["name"].to_numpy()
    return pa.array(classes, pa.string())


def calibrate(judged: Frame) -> Calibration | None:
    """What the engine rows of a dataset say about our rules; None where no row has an engine's ids.

    Args:
        judged: Frame of facts; of engine rows those are used whose text is that of their ids and whose form is sound.
    """
    usable = (
        pl.col("reencode_equal").is_not_null()
        & pl.col("n_reencoded_ids").is_not_null()
        & pl.col("text_equal").fill_null(False)
        & pl.col("structure").is_null()
    ).alias("_usable")
    agrees = pl.col("n_reencoded_ids") == pl.col("n_ids")
    counted = collected(
        judged.lazy()
        .filter(pl.col("ids_source") == str(IdsSource.ENGINE))
        .group_by(usable, "text_class")
        .agg(
            pl.len().cast(pl.Int64).alias("rows"),
            pl.col("n_ids").cast(pl.Int64).sum().alias("ids"),
            (~pl.col("reencode_equal")).sum().cast(pl.Int64).alias("differing"),
            agrees.sum().cast(pl.Int64).alias("agreeing"),
            (agrees & ~pl.col("reencode_equal")).sum().cast(pl.Int64).alias("wrong"),
        )
    )
    if counted.is_empty():
        return None
    used = counted.filter("_usable")
    left_out = int(counted["rows"].sum()) - int(used["rows"].sum())
    return Calibration(says=_sentence(_class("all", used)), left_out=left_out, classes=tuple(_classes(used)))


def _classes(counted: pl.DataFrame) -> Iterator[CalibrationClass]:
    yield _class("all", counted)
    for name in CLASSES:
        own = counted.filter(pl.col("text_class") == name)
        if len(own):
            yield _class(name, own)


def _class(name: str, counted: pl.DataFrame) -> CalibrationClass:
    """Lines of counts as one class."""
    rows, ids, differing, agreeing, wrong = (
        int(counted[column].sum()) for column in ("rows", "ids", "differing", "agreeing", "wrong")
    )
    differing_low, differing_high = wilson_interval(differing, rows)
    wrong_low, wrong_high = wilson_interval(wrong, agreeing)
    return CalibrationClass(
        name=name,
        rows=rows,
        ids=ids,
        differing=differing,
        differing_low=differing_low,
        differing_high=differing_high,
        agreeing=agreeing,
        wrong=wrong,
        wrong_low=wrong_low,
        wrong_high=wrong_high,
    )


def _sentence(found: CalibrationClass) -> str:
    """What follows for rows that are `counted`."""
    if not found.agreeing:
        return "no engine row could be rebuilt from its own text, so nothing is known of the error of counted rows"
    return (
        f"of {found.agreeing:,} engine rows whose count agrees when their text is rebuilt, {found.wrong:,} have other "
        f"ids all the same ({found.wrong_low:.2%} to {found.wrong_high:.2%}): a lower bound of the error of counted "
        "rows, since it sees only splits that were sampled, not what a provider does to text"
    )


# --- two sources, the same questions ---------------------------------------------------------------


def compare_probes(rows: pl.DataFrame) -> list[ProbeComparison]:
    """Probe rows against the rows of the same question, by pair of sources and mode, the largest first.

    Args:
        rows: `sample_id`, `turn`, `sample_index`, `probe`, `source`, `provider`, `mode`, `output_ids` of probe rows
            and of the rows that they are compared with; rows without ids are passed over.
    """
    key = ["sample_id", "turn", "sample_index", "mode"]
    known = rows.filter(pl.col("output_ids").is_not_null())
    probes = known.filter(pl.col("probe")).select(
        *key, pl.col("source").alias("probe_source"), pl.col("provider").alias("probe_provider"),
        pl.col("output_ids").alias("_theirs"),
    )  # fmt: skip
    own = known.filter(~pl.col("probe")).select(*key, "source", "provider", pl.col("output_ids").alias("_ours"))
    pairs = own.join(probes, on=key).with_row_index("_pair")
    if pairs.is_empty():
        return []
    shorter = pl.min_horizontal(pl.col("_ours").list.len(), pl.col("_theirs").list.len())
    pairs = pairs.with_columns(shorter.alias("_shorter"))
    pairs = pairs.join(_first_differences(pairs), on="_pair", how="left").with_columns(
        _exact=(pl.col("_ours").list.len() == pl.col("_theirs").list.len()) & pl.col("_first").is_null(),
        _ratio=pl.col("_theirs").list.len() / pl.col("_ours").list.len(),
    )
    # Where one is the beginning of the other, they part where the shorter one ends.
    first = pl.when(~pl.col("_exact")).then(pl.coalesce("_first", "_shorter"))
    groups = ["source", "provider", "probe_source", "probe_provider", "mode"]
    table = (
        pairs.group_by(groups, maintain_order=True)
        .agg(
            pl.len().alias("pairs"),
            pl.col("_exact").sum().alias("exact"),
            first.median().alias("first_difference"),
            pl.col("_ratio").filter(pl.col("_ratio").is_finite()).median().alias("length_ratio"),
        )
        .sort("pairs", *groups, descending=[True, *[False] * len(groups)], nulls_last=True)
    )
    return [ProbeComparison(**row) for row in table.head(_MAX_PAIRS).iter_rows(named=True)]


def _first_differences(pairs: pl.DataFrame) -> pl.DataFrame:
    """`_pair` and `_first`: the index of the first id that differs within what both have; pairs without one are left
    out."""
    size = pl.col("_shorter")
    return (
        pairs.filter(size > 0)
        .select(
            "_pair",
            pl.col("_ours").list.head(size),
            pl.col("_theirs").list.head(size),
            pl.int_ranges(0, size.cast(pl.Int64)).alias("_at"),
        )
        .explode("_ours", "_theirs", "_at")
        .filter(pl.col("_ours") != pl.col("_theirs"))
        .group_by("_pair")
        .agg(pl.col("_at").min().alias("_first"))
    )
