"""Suites: the only statement of what must hold, read strictly from Great Expectations' own JSON form.

::

    {"name": "…",
     "expectations": [{"type": "expect_…", "kwargs": {…}, "severity": "critical",
                       "meta": {"id": "…", "says": "…", "wrong": "…", "why": "…"}}],
     "meta": {"tokenproof": {"max_quarantined_share": 0.05, "table": "rows"}}}

A suite of table `providers` judges the providers table, a line per provider and mode, not rows: its expectations are
of the dataset, put nothing into quarantine, and name the providers that fail.

Great Expectations forgives much: it drops an expectation that it does not know, and skips what it does
not find. Here whatever would not be checked as written is an error, and one message names all of them.
Nothing here imports Great Expectations; `toolkit.audit.gx.evaluate.check_suite` asks it about types and kwargs.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from toolkit.audit.suite_columns import (
    ROW_TYPES,
    SCHEMAS,
    Table,
    did_you_mean,
    for_each_faults,
    kwargs_faults,
    named_columns,
    show,
)
from toolkit.audit.suite_conditions import condition_columns, condition_faults, condition_words
from toolkit.errors import ConfigError, SuiteError
from toolkit.records import DEFAULT_MAX_QUARANTINED_SHARE, Json, Severity
from toolkit.store.files import read_regular

Scope = Literal["row", "dataset"]

_SHIPPED_FOLDERS = (Path(__file__).parents[1] / "expectations", Path(__file__).parents[2] / "expectations")
"""In a wheel the suites lie inside the package, in the repository beside it."""

_SUITE_KEYS = frozenset({"name", "expectations", "meta", "id", "notes", "description", "suite_parameters"})
_EXPECTATION_KEYS = frozenset({"type", "kwargs", "severity", "meta", "id", "notes", "description", "rendered_content"})
_SETTINGS = frozenset({"max_quarantined_share", "table"})
_ID = re.compile(r"[a-z0-9_]{1,48}")
_DERIVED_ID_LENGTH = 40
_TYPE_PREFIXES = ("expect_column_pair_values_", "expect_column_values_", "expect_column_", "expect_table_", "expect_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One expectation of a suite.

    Attributes:
        id: Unique within the suite; quarantine reasons are such ids.
        type: Great Expectations' name of it, `expect_…`.
        kwargs: As in the file, `mostly` included; null row conditions are left out.
        scope: `row` where each row passes or fails, else `dataset`.
        mostly: The share of rows that must pass, 0 < mostly ≤ 1; None where the file states none.
        says: One sentence for reports: what must hold.
        wrong: One sentence for reports: what is wrong where it fails; None where the file gives none.
        why: The reason for `mostly` and severity, where the file gives one.
        for_each: Columns: each group of their values is judged by itself (`toolkit.audit.suite_groups`).
    """

    id: str
    type: str
    kwargs: Mapping[str, Json]
    severity: Severity
    scope: Scope
    mostly: float | None
    says: str
    why: str | None
    wrong: str | None = None
    for_each: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads, those of its row condition included, each once."""
        names = [*named_columns(self.kwargs), *condition_columns(self.kwargs.get("row_condition"))]
        return tuple(dict.fromkeys(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A suite that was read in full.

    Attributes:
        path: Where it was read, as the user named it; begins every message about it.
        sha256: Of the file's bytes.
        max_quarantined_share: The largest share of rows that may fail a critical expectation, 0 to 1.
        table: What it judges: `rows` (the judged facts) or `providers`.
    """

    name: str
    path: str
    sha256: str
    max_quarantined_share: float
    expectations: tuple[Expectation, ...]
    table: Table = "rows"


def read_suite(path: Path) -> Suite:
    """Read a suite file.

    Raises:
        SuiteError: The file cannot be read, or has something that would not be checked as written.
    """
    try:
        content = read_regular(path)
    except OSError as error:
        raise SuiteError(f"{path}: cannot read the suite: {error.strerror or error}") from error
    return parse_suite(content, str(path))


def parse_suite(content: bytes, where: str) -> Suite:
    """Read a suite from its bytes; `where` begins every message.

    Raises:
        SuiteError: One line per fault: file, place, expected, found.
    """
    faults: list[str] = []
    document = _decode(content, where, faults)
    if not isinstance(document, dict):
        raise SuiteError(f"{where}: expected a JSON object, found {show(document)}")
    faults += _suite_faults(document)
    table = _table_of(document)
    items = document.get("expectations")
    entries = list(enumerate(items)) if isinstance(items, list) else []
    for number, item in entries:
        faults += (f"{place_of(number, _given_id(item))}: {fault}" for fault in _expectation_faults(item, table))
    faults += _id_faults(item for _, item in entries)
    if entries and not any(_is_critical(item) for _, item in entries):
        faults.append("expectations: expected at least one of severity critical, found none: nothing closes the gate")
    if faults:
        raise SuiteError("\n".join(f"{where}: {fault}" for fault in faults))
    return Suite(
        name=document["name"],
        path=where,
        sha256=hashlib.sha256(content).hexdigest(),
        max_quarantined_share=_max_quarantined_share(document, table),
        expectations=_expectations([item for _, item in entries], table),
        table=table,
    )


def place_of(number: int, name: str | None) -> str:
    """Where an expectation stands in its file: `expectations[4] (terminal_last)`; without a name the index alone."""
    named = name is not None and _ID.fullmatch(name)
    return f"expectations[{number}]" + (f" ({name})" if named else "")


def shipped_suite(name: str) -> Path:
    """The path of a suite that comes with the tool; suites bear the names of contracts.

    Raises:
        ConfigError: There is no such suite.
    """
    found = {path.stem: path for folder in reversed(_SHIPPED_FOLDERS) for path in folder.glob("*.json")}
    if name not in found:
        raise ConfigError(f"no shipped suite {name!r}: expected one of {', '.join(sorted(found)) or 'none'}")
    return found[name]


# --- reading ------------------------------------------------------------------------------------


def _decode(content: bytes, where: str, faults: list[str]) -> Json:
    """The JSON value. Keys that occur twice and numbers that JSON has not are added to `faults`."""

    def read_object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        seen: dict[str, Json] = {}
        for key, value in pairs:
            if key in seen:
                faults.append(f"expected each key once in an object, found {show(key)} twice")
            seen[key] = value
        return seen

    def read_number(text: str) -> float:
        if not math.isfinite(number := float(text)):
            faults.append(f"expected finite numbers, found {text}")
        return number

    try:
        text = content.decode("utf-8")
        value = json.loads(text, object_pairs_hook=read_object, parse_constant=read_number, parse_float=read_number)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
        return value
    except UnicodeEncodeError as error:
        raise SuiteError(
            f"{where}: expected text, found half of a surrogate pair: {show(error.object[error.start])}"
        ) from error
    except UnicodeDecodeError as error:
        raise SuiteError(f"{where}: expected UTF-8, found byte {content[error.start]:#04x} at {error.start}") from error
    except RecursionError as error:
        raise SuiteError(f"{where}: expected a suite, found JSON that is nested too deeply") from error
    except ValueError as error:
        raise SuiteError(f"{where}: expected JSON: {error}") from error


def _suite_faults(document: Mapping[str, Json]) -> Iterator[str]:
    yield from _unknown_keys(document, _SUITE_KEYS, "")
    yield from _text_fault(document.get("name"), "name")
    if document.get("suite_parameters"):
        yield "suite_parameters: expected none (values stand in the kwargs), found some"
    items = document.get("expectations")
    if not isinstance(items, list) or not items:
        yield f"expectations: expected a list with at least one expectation, found {show(items)}"
    meta = document.get("meta", {})
    if not isinstance(meta, dict):
        yield f"meta: expected an object, found {show(meta)}"
        return
    for key in meta:
        if key != "tokenproof" and (hint := did_you_mean(key, ["tokenproof"])):
            yield f"meta: unknown key {show(key)}{hint}"
    settings = meta.get("tokenproof", {})
    if not isinstance(settings, dict):
        yield f"meta.tokenproof: expected an object, found {show(settings)}"
        return
    yield from _unknown_keys(settings, _SETTINGS, "meta.tokenproof: ")
    table = settings.get("table", "rows")
    if not isinstance(table, str) or table not in SCHEMAS:
        yield f"meta.tokenproof.table: expected one of {', '.join(SCHEMAS)}, found {show(table)}"
    elif table != "rows" and "max_quarantined_share" in settings:
        yield f"meta.tokenproof.max_quarantined_share: a suite of table {table} puts no row into quarantine"
    share = settings.get("max_quarantined_share", DEFAULT_MAX_QUARANTINED_SHARE)
    if not _is_number(share) or not 0 <= share <= 1:
        yield f"meta.tokenproof.max_quarantined_share: expected a number from 0 to 1, found {show(share)}"


def _expectation_faults(item: Json, table: Table) -> Iterator[str]:
    if not isinstance(item, dict):
        yield f"expected an object, found {show(item)}"
        return
    yield from _unknown_keys(item, _EXPECTATION_KEYS, "")
    type_name = item.get("type")
    if not isinstance(type_name, str) or not type_name:
        yield f"type: expected the name of an expectation, found {show(type_name)}"
    if "severity" in item and item["severity"] not in tuple(Severity):
        yield f"severity: expected {', '.join(Severity)}, found {show(item['severity'])}"
    yield from _meta_faults(item.get("meta", {}), table)
    kwargs = item.get("kwargs", {})
    if not isinstance(kwargs, dict):
        yield f"kwargs: expected an object, found {show(kwargs)}"
        return
    mostly = kwargs.get("mostly", 1)
    if not _is_number(mostly) or not 0 < mostly <= 1:
        yield f"kwargs.mostly: expected a number above 0, at most 1, found {show(mostly)}"
    if _has_parameter(kwargs):
        yield 'kwargs: expected values, found {"$PARAMETER": …}: parameters are not filled in'
    if kwargs.get("condition_parser") is not None:
        yield (
            "kwargs.condition_parser: expected none, found "
            f"{show(kwargs['condition_parser'])}: write row_condition as an object, not as a string"
        )
    if kwargs.get("row_condition") is not None:
        yield from condition_faults(kwargs["row_condition"], "kwargs.row_condition", SCHEMAS[table])
    yield from kwargs_faults(type_name if isinstance(type_name, str) else "", kwargs, SCHEMAS[table])


def _meta_faults(meta: Json, table: Table) -> Iterator[str]:
    if not isinstance(meta, dict):
        yield f"meta: expected an object, found {show(meta)}"
        return
    if "id" in meta and not (isinstance(meta["id"], str) and _ID.fullmatch(meta["id"])):
        yield f"meta.id: expected 1 to 48 of a-z, 0-9 and _, found {show(meta['id'])}"
    for key in ("says", "wrong", "why"):
        if key in meta:
            yield from _text_fault(meta[key], f"meta.{key}")
    if "for_each" in meta:
        yield from for_each_faults(meta["for_each"], SCHEMAS[table])
    for key in meta:
        if key != "for_each" and (hint := did_you_mean(key, ["for_each"])):
            yield f"meta: unknown key {show(key)}{hint}"


def _id_faults(items: Iterable[Json]) -> Iterator[str]:
    first: dict[str, int] = {}
    for number, item in enumerate(items):
        name = _given_id(item)
        if name is not None and name in first:
            place = place_of(number, name)
            yield f"{place}: meta.id: expected unique ids, found {show(name)} as in [{first[name]}]"
        elif name is not None:
            first[name] = number


def _unknown_keys(found: Mapping[str, Json], known: frozenset[str], place: str) -> Iterator[str]:
    for key in found:
        if key == "expectation_type":
            yield f"{place}unknown key 'expectation_type': expected 'type', as Great Expectations 1.x writes it"
        elif key not in known:
            yield f"{place}unknown key {show(key)}{did_you_mean(key, known)}"


def _text_fault(value: Json, place: str) -> Iterator[str]:
    if not isinstance(value, str) or not value.strip():
        yield f"{place}: expected a text, found {show(value)}"


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_critical(item: Json) -> bool:
    return isinstance(item, dict) and item.get("severity", Severity.CRITICAL) == Severity.CRITICAL


def _has_parameter(value: Json) -> bool:
    if isinstance(value, dict):
        return "$PARAMETER" in value or any(map(_has_parameter, value.values()))
    return isinstance(value, list) and any(map(_has_parameter, value))


# --- from a file without faults -----------------------------------------------------------------


def _settings(document: Mapping[str, Any]) -> Mapping[str, Any]:
    settings: Mapping[str, Any] = document.get("meta", {}).get("tokenproof", {})
    return settings


def _table_of(document: Mapping[str, Any]) -> Table:
    """The table that a suite names; rows where it names none, or none that there is."""
    meta = document.get("meta")
    settings = meta.get("tokenproof") if isinstance(meta, dict) else None
    return "providers" if isinstance(settings, dict) and settings.get("table") == "providers" else "rows"


def _max_quarantined_share(document: Mapping[str, Any], table: Table) -> float:
    """What the file states, else the default; a suite that quarantines nothing bounds nothing."""
    default = DEFAULT_MAX_QUARANTINED_SHARE if table == "rows" else 1.0
    return float(_settings(document).get("max_quarantined_share", default))


def _given_id(item: Json) -> str | None:
    meta = item.get("meta") if isinstance(item, dict) else None
    name = meta.get("id") if isinstance(meta, dict) else None
    return name if isinstance(name, str) else None


def _expectations(items: list[dict[str, Any]], table: Table) -> tuple[Expectation, ...]:
    taken = {name for item in items if (name := _given_id(item))}
    made = []
    for item in items:
        expectation = _expectation(item, table)
        if not expectation.id:
            expectation = dataclasses.replace(expectation, id=_derived_id(expectation, taken))
            taken.add(expectation.id)
        made.append(expectation)
    return tuple(made)


def _expectation(item: dict[str, Any], table: Table) -> Expectation:
    """One expectation; its id is "" where the file gives none."""
    optional = ("row_condition", "condition_parser")
    kwargs = {k: v for k, v in item.get("kwargs", {}).items() if v is not None or k not in optional}
    meta = item.get("meta", {})
    description = item.get("description")
    return Expectation(
        id=_given_id(item) or "",
        type=item["type"],
        kwargs=kwargs,
        severity=Severity(item.get("severity", Severity.CRITICAL)),
        scope="row" if table == "rows" and item["type"] in ROW_TYPES else "dataset",
        mostly=float(kwargs["mostly"]) if "mostly" in kwargs else None,
        says=meta.get("says") or (description if isinstance(description, str) else None) or _sentence(item, kwargs),
        why=meta.get("why"),
        wrong=meta.get("wrong"),
        for_each=tuple(meta.get("for_each", ())),
    )


def _short_type(type_name: str) -> str:
    """`in_set` of expect_column_values_to_be_in_set, `row_count_between` of expect_table_row_count_to_be_between."""
    prefix = next((prefix for prefix in _TYPE_PREFIXES if type_name.startswith(prefix)), "")
    return re.sub(r"(^|_)to_(be_)?", r"\1", type_name.removeprefix(prefix))


def _derived_id(expectation: Expectation, taken: set[str]) -> str:
    """`source_in_set`, then `source_in_set_2`: from columns and type, stable while the suite's order stands."""
    words = "_".join([*named_columns(expectation.kwargs), _short_type(expectation.type)])
    base = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")[:_DERIVED_ID_LENGTH].strip("_") or "expectation"
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    return name


def _sentence(item: Mapping[str, Any], kwargs: Mapping[str, Json]) -> str:
    """`source: expect column values to be in set [sglang] where mode == instant.`"""
    columns = ", ".join(named_columns(kwargs))
    skipped = ("column", "column_A", "column_B", "column_list", "row_condition", "mostly")
    rest = ", ".join(f"{key} {show(value)}" for key, value in kwargs.items() if key not in skipped)
    condition = kwargs.get("row_condition")
    where = f" where {condition_words(condition)}" if condition else ""
    return f"{columns + ': ' if columns else ''}{item['type'].replace('_', ' ')}{' ' + rest if rest else ''}{where}."
