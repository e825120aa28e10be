"""What is wrong with a contract that has the right shape: parts that do not fit each other. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolkit.contract import Contract, FinishTable, Mode, RawTools, VocabularySpec

PARTS = ("{reasoning}", "{content}", "{tools}", "{terminal}")
CALL_PARTS = ("{id}", "{arguments}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

_LOOKS_SPECIAL = re.compile(r"<\|?[^\s<>]+\|?>")
_SOURCES = ("splintr", "folder", "huggingface")
_LARGEST_VOCABULARY = 1 << 24
"""Ids; the largest known vocabularies have some 260,000. Tables of one entry an id are made of it."""

_MOST_HOLES = 100
"""Engines that need a token for every id get pairs of bytes that no UTF-8 text has, of which there are so many."""


def faults_of(contract: Contract) -> Iterator[str]:
    """What is wrong with a contract that has the right shape."""
    if not NAME.fullmatch(contract.name):
        yield f"name: expected up to 100 letters, digits, dots, _ and -, found {contract.name[:80]!r}"
    if not contract.models:
        yield "models: expected at least one model name"
    if contract.default_mode not in contract.modes:
        yield f"default_mode: {contract.default_mode!r} is not one of the modes {sorted(contract.modes)}"
    if set(contract.terminals) != {"stop", "tool_calls"}:
        yield "terminals: expected both stop and tool_calls"
    yield from _vocabulary_faults(contract.vocabulary, contract.vocab_size)
    yield from _special_faults(contract.special, contract.vocabulary, contract.vocab_size)
    known = contract.special
    for where, spelling in _named_specials(contract):
        if spelling not in known:
            yield f"{where}: {spelling!r} is not in [special]"
    yield from _finish_faults(contract.finish)
    if contract.tools is not None:
        call = contract.tools.call
        if len(call) != 5 or call[1] != "{id}" or call[3] != "{arguments}":
            yield 'tools.call: expected [begin, "{id}", between, "{arguments}", end]'
    if contract.raw_tools is not None:
        if contract.tools is not None:
            yield "raw_tools: expected [tools] or [raw_tools], found both"
        yield from (f"raw_tools.{fault}" for fault in _raw_tools_faults(contract.raw_tools))
    for name, mode in contract.modes.items():
        yield from (f"modes.{name}.{fault}" for fault in _mode_faults(mode, known, contract))


def _vocabulary_faults(spec: VocabularySpec, vocab_size: int) -> Iterator[str]:
    kind, _, name = spec.source.partition(":")
    if kind not in _SOURCES or not name:
        yield f"vocabulary.from: expected splintr:NAME, folder:PATH or huggingface:NAME, found {spec.source[:80]!r}"
    if not 1 <= vocab_size <= _LARGEST_VOCABULARY:
        yield f"vocab_size: expected 1 to {_LARGEST_VOCABULARY}, found {vocab_size!r:.40}"
    elif not 1 <= spec.base_tokens <= vocab_size:
        yield f"vocabulary.base_tokens: expected 1 to vocab_size ({vocab_size}), found {spec.base_tokens!r:.40}"
    if spec.holes and not (min(spec.holes) >= 0 and max(spec.holes) < spec.base_tokens):
        yield f"vocabulary.holes: expected ids from 0 to {spec.base_tokens - 1}, found {sorted(spec.holes)!r:.80}"
    if len(spec.holes) > _MOST_HOLES:
        yield f"vocabulary.holes: expected at most {_MOST_HOLES}, found {len(spec.holes):,}"
    if spec.ranks_sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", spec.ranks_sha256):
        yield f"vocabulary.ranks_sha256: expected 64 digits 0-9 and a-f, found {spec.ranks_sha256[:80]!r}"


def _special_faults(special: Mapping[str, int], spec: VocabularySpec, vocab_size: int) -> Iterator[str]:
    by_id: dict[int, str] = {}
    for spelling, token_id in special.items():
        if not spelling:
            yield "special: an empty spelling"
        if token_id not in spec.holes and not spec.base_tokens <= token_id < vocab_size:
            hint = f" or one of {len(spec.holes)} holes" if spec.holes else ""
            yield f"special: {spelling!r:.80} = {token_id!r:.40}; expected {spec.base_tokens} to {vocab_size - 1}{hint}"
        if token_id in by_id:
            yield f"special: {spelling!r} and {by_id[token_id]!r} both have the id {token_id}"
        by_id[token_id] = spelling


def _finish_faults(finish: FinishTable) -> Iterator[str]:
    tables = {"stop": finish.stop, "length": finish.length, "tool_calls": finish.tool_calls}
    for name, reasons in tables.items():
        for reason in sorted(reasons):
            if reason != reason.strip().lower() or not reason:
                yield f"finish.{name}: expected lower case, found {reason!r}"
    for reason in sorted(set().union(*tables.values())):
        inside = [name for name, reasons in tables.items() if reason in reasons]
        if len(inside) > 1:
            yield f"finish: {reason!r} stands in {' and '.join(inside)}"


def _named_specials(contract: Contract) -> Iterator[tuple[str, str]]:
    for outcome, spelling in contract.terminals.items():
        yield f"terminals.{outcome}", spelling
    for marker in contract.markers:
        yield "markers", marker
    if contract.think is not None:
        yield "think.begin", contract.think.begin
        yield "think.end", contract.think.end
    if contract.tools is not None:
        yield "tools.section_begin", contract.tools.section_begin
        yield "tools.section_end", contract.tools.section_end
        for spelling in contract.tools.call:
            if spelling not in CALL_PARTS:
                yield "tools.call", spelling
    if contract.raw_tools is not None:
        for spelling in contract.raw_tools.spellings:
            yield "raw_tools", spelling


def _raw_tools_faults(form: RawTools) -> Iterator[str]:
    if not form.begins:
        yield "begins: expected at least one special spelling"
    if form.follows and not form.ends:
        yield "ends: expected at least one special spelling, where follows gives an order"
    reached = set(form.begins)
    while grown := {after for spelling in reached for after in form.follows.get(spelling, ())} - reached:
        reached |= grown
    for spelling in form.spellings:
        if form.ends and spelling not in reached:
            yield f"follows: {spelling!r} comes after nothing"


def _mode_faults(mode: Mode, special: Mapping[str, int], contract: Contract) -> Iterator[str]:
    if mode.output.count("{content}") != 1 or mode.output.count("{terminal}") != 1:
        yield "output: expected {content} and {terminal} once each"
    elif mode.output[-1] != "{terminal}":
        yield "output: expected {terminal} last"
    for part in ("{reasoning}", "{tools}"):
        if mode.output.count(part) > 1:
            yield f"output: expected {part} at most once"
    for name, sent in (("request", mode.request), ("renderer_options", mode.renderer_options)):
        try:
            json.dumps(sent, allow_nan=False)
        except (TypeError, ValueError) as error:
            yield f"{name}: expected what JSON can say: {error}"
    for name, pieces in (("prompt_ends_with", mode.prompt_ends_with), ("prompt_adds", mode.prompt_adds)):
        if any(piece in PARTS for piece in pieces):
            yield f"{name}: expected spellings and text, found {list(pieces)}"
    if mode.rendered_as is not None and mode.rendered_as not in contract.modes:
        yield f"rendered_as: {mode.rendered_as!r:.80} is not one of the modes {sorted(contract.modes)}"
    if "{tools}" in mode.output and contract.tools is None and contract.raw_tools is None:
        yield "output: {tools} needs a [tools] table"
    for piece in (*mode.output, *mode.prompt_ends_with, *mode.prompt_adds):
        if piece in PARTS or piece in special:
            continue
        if _LOOKS_SPECIAL.fullmatch(piece) or (piece.startswith("{") and piece.endswith("}")):
            yield f"output: {piece!r} is neither a part {PARTS} nor in [special]"
