r"""Regular expressions and SQL patterns as polars predicates that match what Python's `re` matches.

Rust's regular expressions are fast, and differ: `\w`, `\s` and `\b` know other characters, `$` does not match before
a last newline, look-around and back-references do not exist. A pattern is given to polars only if each
of its parts means the same in both; any other goes through `re`, value by value.
"""

from __future__ import annotations

import re

import polars as pl

from toolkit.audit.gx.comparing import kind_of
from toolkit.errors import SuiteError

_SAME_IN_BOTH = re.compile(
    r"""\^?
    (?:
        [^\\.^$*+?(){}\[\]|]                                # a character for itself
      | \\[.^$*+?(){}\[\]|\\/-] | \\d | \.
      | \[\^?(?:[A-Za-z0-9_ .:/,=@]|[A-Za-z0-9]-[A-Za-z0-9]|\\[.^$*+?(){}\[\]|\\/-])+\]
      | \((?:\?:)? | \) | \|
      | (?:(?<![(|^])(?:[*+?]|\{[0-9]{1,3}(?:,(?:[0-9]{1,3})?)?\})\??)(?![*+?{])
    )*
    \$?""",
    re.VERBOSE,
)
_AT_END = r"(?:\n?\z)"


def as_text(expr: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Text as Great Expectations reads a column of text, whole numbers, flags or dates.

    Raises:
        SuiteError: Other values have no one text: 1e16 is `1e16` to one library and `1e+16` to the next.
    """
    kind = kind_of(dtype)
    if kind in ("text", "null"):
        return expr.cast(pl.String)
    if dtype.is_integer() or dtype == pl.Date:
        return expr.cast(pl.String)
    if kind == "flag":
        return pl.when(expr).then(pl.lit("True")).when(expr.not_()).then(pl.lit("False"))
    raise SuiteError(f"expected a column of text, whole numbers, flags or dates, found {dtype}")


def matches(text: pl.Expr, pattern: str) -> pl.Expr:
    """Whether `re.search(pattern, text)` finds something; null where the text is null.

    Raises:
        SuiteError: The pattern is no regular expression of Python's.
    """
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError) as error:
        raise SuiteError(f"expected a regular expression, found {pattern!r} ({error})") from error
    rust = rust_pattern(pattern)
    if rust is not None:
        return text.str.contains(rust)

    def search(texts: pl.Series) -> pl.Series:
        found = [None if value is None else compiled.search(value) is not None for value in texts]
        return pl.Series(texts.name, found, dtype=pl.Boolean)

    return text.map_batches(search, return_dtype=pl.Boolean, is_elementwise=True)


def rust_pattern(pattern: str) -> str | None:
    """The pattern for polars, or None where it would not match the same texts as in Python."""
    if not _SAME_IN_BOTH.fullmatch(pattern):
        return None
    ends = pattern.endswith("$") and not pattern.endswith("\\$")
    rust = pattern[:-1] + _AT_END if ends else pattern
    try:
        pl.select(pl.lit("").str.contains(rust))
    except pl.exceptions.ComputeError:
        return None
    return rust


def like(text: pl.Expr, pattern: str, escape: str | None = None) -> pl.Expr:
    """Whether a text is like a pattern of SQL: `%` stands for any text, `_` for one character; case counts.

    Args:
        escape: A character after which `%`, `_` and itself stand for themselves; None: there is none.

    Raises:
        SuiteError: The pattern ends within an escape, or `escape` is not one character.
    """
    if escape is not None and len(escape) != 1:
        raise SuiteError(f"expected one character to escape with, found {escape!r}")
    parts, rest = [], iter(pattern)
    for character in rest:
        if character == escape:
            following = next(rest, None)
            if following is None:
                raise SuiteError(f"expected a character after {escape!r}, found the end of {pattern!r}")
            parts.append(_literal(following))
        else:
            parts.append({"%": ".*", "_": "."}.get(character) or _literal(character))
    return text.str.contains(rf"(?s)\A{''.join(parts)}\z")


def _literal(character: str) -> str:
    return character if character.isalnum() else rf"\x{{{ord(character):x}}}"
