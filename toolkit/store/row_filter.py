"""`--where`: a small language that chooses rows by their columns and facts. Nothing in it is ever executed.

::

    provider=Chutes,finish_reason!=stop     both must hold
    created<2026-03-01,n_ids>4000           before a day (UTC), more than
    note=cut_tail,model=null                bears a note; has no model
    shard=part-00003,sample_id="a,b"        quotes around what holds a comma
    @ids.txt                                sample_id is a line of that file
    reason=evidence_given                   fails that critical expectation, by the last audit of just these shards
    quarantined=true                        fails any of them

A null equals nothing but `null`, and is neither smaller nor larger than anything.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from enum import Enum
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.columns import FACT_COLUMNS, JUDGED_COLUMNS, SHARD_SCHEMA
from toolkit.errors import ConfigError, StoreError
from toolkit.records import Json, LiveShard
from toolkit.store.shards import read_live, read_shard
from toolkit.store.workspace import Dataset

_CONDITION = re.compile(r"([a-z_]+)\s*(!=|=|<|>)\s*(.*)", re.DOTALL)
_PART = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^,"])*')
_SHORTEST_SHA256 = 8
_SHOWN = ["sample_id", "turn", "sample_index", "source", "provider", "finish_reason"]


class Kind(Enum):
    """What a field holds."""

    TEXT = "text"
    NUMBER = "a number"
    FLAG = "true or false"
    TIME = "a day, a time or seconds since 1970"
    NOTE = "the code of a note"
    SHARD = "a shard's name, or the beginning of its sha256"
    REASON = "the id of a critical expectation"


def _kind_of(name: str, kind: pa.DataType) -> Kind:
    if name == "created":
        return Kind.TIME
    if pa.types.is_boolean(kind):
        return Kind.FLAG
    return Kind.TEXT if pa.types.is_string(kind) else Kind.NUMBER


FIELDS = {
    column.name: _kind_of(column.name, column.type) for column in FACT_COLUMNS if not pa.types.is_list(column.type)
} | {"note": Kind.NOTE, "shard": Kind.SHARD, "quarantined": Kind.FLAG, "reason": Kind.REASON}
"""What a condition may speak of: the columns of a fact, which are those of a row that are no text, `note`, `shard`, and
what the last audit put in quarantine."""

_JUDGED = frozenset(column.name for column in JUDGED_COLUMNS) - set(FIELDS)

QUARANTINE_FIELDS = ("quarantined", "reason")
"""Columns of the table that `select_rows` asks for: bool, and a list of the reasons, empty where there is none."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison; `value` is None for null, and a list of texts for a file of ids."""

    field: str
    operator: str
    value: Json

    def mask(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """For each row whether it holds; never null."""
        kind = FIELDS[self.field]
        if isinstance(self.value, list):
            return pc.is_in(column, pa.array(self.value, pa.string()))
        if self.value is None:
            holds = pc.is_null(column)
        elif kind in (Kind.NOTE, Kind.REASON):
            holds = pa.chunked_array([_bears(chunk, self.value) for chunk in column.chunks], pa.bool_())
        elif self.operator in "<>":
            compare = pc.less if self.operator == "<" else pc.greater
            return pc.fill_null(compare(column, pa.scalar(self.value)), fill_value=False)
        else:
            holds = pc.fill_null(pc.equal(column, pa.scalar(self.value)), fill_value=False)
        return pc.invert(holds) if self.operator == "!=" else holds

    def holds_for(self, shard: LiveShard) -> bool:
        """Whether it holds for all rows of a shard, where it speaks of shards."""
        named = self.value in (Path(shard.path).name, Path(shard.path).stem)
        found = named or (len(self.value) >= _SHORTEST_SHA256 and shard.sha256.startswith(self.value))
        return found != (self.operator == "!=")


def _bears(notes: pa.ListArray, note: str) -> pa.Array:
    """Which lists hold a text."""
    found = np.zeros(len(notes), np.bool_)
    at = pc.list_parent_indices(notes).to_numpy()
    equal = pc.fill_null(pc.equal(pc.list_flatten(notes), note), fill_value=False)
    found[at[equal.to_numpy(zero_copy_only=False)]] = True
    return pa.array(found)


# --- reading an expression ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Conditions that must all hold, and the text that they were read from."""

    text: str
    conditions: tuple[Condition, ...]

    def of(self, *, facts: bool) -> list[Condition]:
        """The conditions on measured facts, or those on columns of the shard."""
        apart = ("shard", *QUARANTINE_FIELDS)
        return [
            c for c in self.conditions if c.field not in apart and (_column(c.field) not in SHARD_SCHEMA.names) == facts
        ]

    @property
    def of_quarantine(self) -> list[Condition]:
        """The conditions on what the last audit found."""
        return [condition for condition in self.conditions if condition.field in QUARANTINE_FIELDS]


def parse_where(text: str, ids_of: Callable[[str], Sequence[str]]) -> RowFilter:
    """Read an expression.

    Args:
        text: As the module says.
        ids_of: The sample_ids in a file that the expression names.

    Raises:
        ConfigError: it is not one: what was expected, and what was found.
    """
    return RowFilter(text, tuple(_condition(part, ids_of) for part in _split(text)))


def _split(text: str) -> Iterator[str]:
    at = 0
    while True:
        match = _PART.match(text, at)
        assert match is not None  # it matches nothing at all, too
        part, at = match[0].strip(), match.end()
        if at < len(text) and text[at] == '"':
            raise ConfigError(f"--where: expected a closing quote after {text[at : at + 40]!r}")
        if not part:
            raise ConfigError(f"--where: expected FIELD=VALUE or @FILE, found nothing in {text[:80]!r}")
        yield part
        if at >= len(text):
            return
        at += 1


def _condition(part: str, ids_of: Callable[[str], Sequence[str]]) -> Condition:
    if part.startswith("@"):
        return Condition("sample_id", "=", _ids(part, ids_of))
    match = _CONDITION.fullmatch(part)
    if match is None:
        raise ConfigError(f"--where: expected FIELD=VALUE, with one of = != < >, or @FILE, found {part[:80]!r}")
    name, operator, text = match.groups()
    kind = FIELDS.get(name)
    if kind is None:
        raise ConfigError(f"--where: unknown field {name[:80]!r}{_instead_of(name)}")
    if operator in "<>" and kind not in (Kind.NUMBER, Kind.TIME):
        raise ConfigError(f"--where: {name}: expected = or != before {kind.value}, found {operator!r}")
    if not text:
        raise ConfigError(f'--where: {name}: expected {kind.value}, found nothing (null: absent, "": empty)')
    if text.startswith("@") and name == "sample_id" and operator == "=":
        return Condition(name, operator, _ids(text, ids_of))
    if text == "null":
        if operator in "<>" or kind in (Kind.NOTE, Kind.SHARD, Kind.REASON):
            raise ConfigError(f"--where: {name}: expected {kind.value}, found null")
        return Condition(name, operator, None)
    return Condition(name, operator, _value(name, kind, text))


def _instead_of(name: str) -> str:
    """What to write where a field is not known; the whole list is far too long for a message."""
    if name in _JUDGED:
        return (
            "; what is judged over all rows together is not kept for each: after an audit, reason=EXPECTATION chooses "
            "the rows that fail a critical one (reason=evidence_given), quarantined=true all that are kept out"
        )
    near = get_close_matches(name, FIELDS, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{hint}; expected a column of a row or of its facts (listed in ARCHITECTURE.md; see discard --help)"


def _ids(text: str, ids_of: Callable[[str], Sequence[str]]) -> list[str]:
    ids = list(ids_of(text[1:]))
    if not ids:
        raise ConfigError(f"--where: {text[:80]}: expected a sample_id in each line, found an empty file")
    return ids


def _value(name: str, kind: Kind, text: str) -> Json:
    """The value that a condition compares with."""
    wrong = ConfigError(f"--where: {name}: expected {kind.value}, found {text[:80]!r}")
    if kind in (Kind.TEXT, Kind.NOTE, Kind.SHARD, Kind.REASON):
        if not text.startswith('"'):
            if '"' in text:
                raise wrong
            return text
        try:
            return str(json.loads(text))
        except ValueError:
            raise wrong from None
    if kind is Kind.FLAG:
        if text not in ("true", "false"):
            raise wrong
        return text == "true"
    try:
        number = float(text)
    except ValueError:
        if kind is Kind.NUMBER:
            raise wrong from None
        return _seconds(text, wrong)
    if not math.isfinite(number):
        raise wrong
    return number


def _seconds(text: str, wrong: ConfigError) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise wrong from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _column(name: str) -> str:
    return "notes" if name == "note" else name


# --- choosing rows ------------------------------------------------------------------------------


@dataclass(slots=True)
class Selection:
    """The rows that a filter chose.

    Attributes:
        masks: Which rows of each shard that has any, by the shard's sha256.
        rows: How many.
        of: How many there are.
        examples: The first of them, as a few columns each.
    """

    masks: dict[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    rows: int = 0
    of: int = 0
    examples: list[dict[str, Json]] = field(default_factory=list)


def select_rows(
    dataset: Dataset,
    where: RowFilter,
    facts_of: Callable[[LiveShard], pa.Table | None],
    quarantine_of: Callable[[LiveShard], pa.Table],
    *,
    examples: int = 5,
) -> Selection:
    """The rows of the live shards for which all conditions hold.

    Args:
        dataset: Whose rows.
        where: The conditions.
        facts_of: The measured facts of a shard; None where it was not measured.
        quarantine_of: `QUARANTINE_FIELDS` of each row of a shard; only asked where a condition speaks of them.
        examples: How many rows are shown.

    Raises:
        StoreError: a shard cannot be read, or a condition speaks of facts that are not measured.
    """
    chosen = Selection()
    about_shards = [condition for condition in where.conditions if condition.field == "shard"]
    columns = sorted({*_SHOWN, *(_column(condition.field) for condition in where.of(facts=False))})
    for shard in read_live(dataset).shards:
        chosen.of += shard.rows
        if not all(condition.holds_for(shard) for condition in about_shards):
            continue
        rows = read_shard(dataset, shard, columns)
        mask = _mask(where.of(facts=False), rows)
        if on_facts := where.of(facts=True):
            facts = facts_of(shard)
            if facts is None:
                raise StoreError(
                    f"--where: {on_facts[0].field}: {dataset.name}/{shard.path} is not measured; run the audit first"
                )
            mask &= _mask(on_facts, facts)
        if where.of_quarantine:
            mask &= _mask(where.of_quarantine, quarantine_of(shard))
        if mask.any():
            chosen.masks[shard.sha256] = mask
            chosen.rows += int(mask.sum())
            left = examples - len(chosen.examples)
            chosen.examples += rows.select(_SHOWN).take(np.flatnonzero(mask)[:left]).to_pylist()
    return chosen


def _mask(conditions: Sequence[Condition], table: pa.Table) -> npt.NDArray[np.bool_]:
    mask = np.ones(table.num_rows, np.bool_)
    for condition in conditions:
        mask &= condition.mask(table[_column(condition.field)]).to_numpy()
    return mask
