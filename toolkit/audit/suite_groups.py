"""One expectation for each group of rows: `meta.for_each` names columns, and each of their values gets its own.

`"for_each": ["provider"]` makes of `terminal_last` as many expectations as there are providers, by a row condition:
`terminal_last[provider=Chutes]`, `terminal_last[provider=null]`. Values come from servers: what they
look like in an id is made safe here. Pure; imports no Great Expectations.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from toolkit.audit.suite import Expectation, Suite
from toolkit.errors import SuiteError
from toolkit.records import Json

Group = tuple[Json, ...]
"""A value for each column of `for_each`."""

MAX_GROUPS = 500
"""More groups than that are no groups, but an identity: an expectation for each would say nothing."""

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ./:@+_-]*")
_SHOWN = 40


def groupings(suite: Suite) -> tuple[tuple[str, ...], ...]:
    """The different `for_each` of a suite, each once."""
    return tuple(dict.fromkeys(expectation.for_each for expectation in suite.expectations if expectation.for_each))


def expanded(suite: Suite, groups: Mapping[tuple[str, ...], Sequence[Group]]) -> Suite:
    """The suite with one expectation for each group in place of each that names `for_each`.

    Args:
        groups: `for_each` → the groups that the table has.

    Raises:
        SuiteError: There are more than `MAX_GROUPS` groups.
    """
    for columns, found in groups.items():
        if len(found) > MAX_GROUPS:
            place = f"{suite.path}: for_each {', '.join(columns)}"
            raise SuiteError(f"{place}: expected at most {MAX_GROUPS} groups, found {len(found):,}")
    made = (one for expectation in suite.expectations for one in _expanded(expectation, groups))
    return replace(suite, expectations=tuple(made))


def _expanded(expectation: Expectation, groups: Mapping[tuple[str, ...], Sequence[Group]]) -> Iterator[Expectation]:
    columns = expectation.for_each
    if not columns or not groups[columns]:
        # Of no rows there are no groups: the expectation stays, and fails as every other does.
        yield replace(expectation, for_each=())
        return
    for group, told in labelled(columns, groups[columns]):
        condition = narrowed(expectation.kwargs.get("row_condition"), columns, group)
        yield replace(
            expectation,
            id=f"{expectation.id}[{told}]",
            kwargs={**expectation.kwargs, "row_condition": condition},
            says=f"{expectation.says.rstrip('.')}, of {told}.",
            for_each=(),
        )


def narrowed(condition: Json, columns: Sequence[str], group: Group) -> Json:
    """A row condition that also asks for a group; Great Expectations allows no `or` within an `and`."""
    wanted = [_is(column, value) for column, value in zip(columns, group, strict=True)]
    if condition is None:
        return wanted[0] if len(wanted) == 1 else {"type": "and", "conditions": wanted}
    if condition["type"] == "or":
        return {"type": "or", "conditions": [narrowed(one, columns, group) for one in condition["conditions"]]}
    members = condition["conditions"] if condition["type"] == "and" else [condition]
    return {"type": "and", "conditions": [*members, *wanted]}


def _is(column: str, value: Json) -> Json:
    if value is None:
        return {"type": "nullity", "column": {"name": column}, "is_null": True}
    return {"type": "comparison", "column": {"name": column}, "operator": "==", "parameter": value}


def labelled(columns: Sequence[str], groups: Iterable[Group]) -> Iterator[tuple[Group, str]]:
    """Groups in order, each with a label of its own: printable, on one line, short."""
    ordered = sorted(groups, key=lambda group: [(value is not None, str(value)) for value in group])
    for group in ordered:
        yield group, ",".join(f"{column}={label(value)}" for column, value in zip(columns, group, strict=True))


def label(value: Json) -> str:
    """A value as part of an id: `Chutes`, `null`, `true`, `3`; other texts quoted, escaped, cut and hashed if long.

    Different values have different labels.
    """
    if not isinstance(value, str):
        return json.dumps(value)
    if len(value) <= _SHOWN and _PLAIN.fullmatch(value) and not _is_json(value):
        return value
    written = json.dumps(value)
    if len(written) <= _SHOWN:
        return written
    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f'{written[: _SHOWN - 14]}…"#{digest}'


def _is_json(text: str) -> bool:
    """Whether a text would look like a value of another type."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
