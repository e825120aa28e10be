"""The rebuild: reply + contract + request → ids. Pure; the rules are those of ARCHITECTURE.md.

A paid reply is always a row: where no rule gives ids, `ids` is None and `status` says why. Nothing is
stripped, normalised or serialised again. Text that *spells* a special token never becomes that token,
with two noted exceptions (`terminal_in_text`, `separator_in_text`) and the tool grammar.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from msgspec import structs

from toolkit.assembly import Plan, Stretches, assemble, encode_together, packed_id, unpacked
from toolkit.assembly import Rebuilt as Rebuilt
from toolkit.contract import Contract, FinishKind
from toolkit.parts import NotDividedError, Parts, divide, name_in, read_engine_ids
from toolkit.records import Ask, IdsSource, RebuildStatus, Reply, ToolCall, is_storable
from toolkit.sampled import sampled_ids
from toolkit.vocabulary import Vocabulary


class _End(msgspec.Struct, frozen=True):
    """How the reply ended: `kind` is None where nobody knows.

    `at_cap`: said to be finished, but at max_tokens; `calls`: either reason says that it ended in tool calls.
    """

    kind: FinishKind | None
    at_cap: bool = False
    calls: bool = False
    note: str | None = None


_UNREADABLE = frozenset({
    "reasoning_not_verbatim", "wrong_type:reasoning", "wrong_type:reasoning_content", "wrong_type:tool_calls",
    "wrong_type:arguments",
})  # fmt: skip
"""Notes of parts that were there, but not as the model wrote them."""


class _NoRuleError(Exception):
    """No rule gives ids for the parts in hand."""

    def __init__(self, status: RebuildStatus, *notes: str):
        super().__init__(*notes)
        self.status = status
        self.notes = notes


def rebuild(reply: Reply, ask: Ask, contract: Contract, vocabulary: Vocabulary) -> Rebuilt:
    """Ids of a reply.

    Ids from the engine are kept; they are complete if and only if the last one is a terminal, whatever
    the finish reason says. Given ids are kept, the text is rebuilt beside them and compared. Where logprobs
    show the sampled split of the text, ids follow it. All else is rebuilt from text, part by part.

    Raises:
        ContractError: the contract has no such mode.
    """
    plan = plan_rebuild(reply, ask, contract, vocabulary)
    return assemble(plan, *encode_together([plan.stretches], vocabulary.encode_packed))


def plan_rebuild(reply: Reply, ask: Ask, contract: Contract, vocabulary: Vocabulary) -> Plan:
    """`rebuild`, but for the encoding, which is up to `assembly.assemble`.

    Raises:
        ContractError: the contract has no such mode.
    """
    contract.mode(ask.mode)
    if reply.output_ids is not None and reply.ids_source is IdsSource.ENGINE:
        return _keep_engine_ids(reply, ask, contract, vocabulary)
    if reply.output_ids is not None and reply.ids_source is IdsSource.GIVEN:
        plan = _plan_from_text(structs.replace(reply, pieces=None), ask, contract, vocabulary)
        return _keep_given_ids(reply, plan, ask, contract, vocabulary)
    return _plan_from_text(reply, ask, contract, vocabulary)


def _keep_given_ids(reply: Reply, plan: Plan, ask: Ask, contract: Contract, vocabulary: Vocabulary) -> Plan:
    given = list(reply.output_ids or ())
    if reply.reasoning is not None or reply.content is not None or reply.tool_calls:
        return structs.replace(plan, kept=given, compared=True, source=IdsSource.GIVEN)
    # No text to rebuild: only the end can be told, from the finish reason and the last id.
    cut = "length" in map(contract.finish.kind_of, (reply.finish_reason, reply.native_finish_reason))
    ended = bool(given) and given[-1] in contract.terminal_ids
    end = RebuildStatus.COMPLETE if ended else RebuildStatus.AMBIGUOUS
    parts = Parts()
    notes: tuple[str, ...] = ("given_without_text",)
    if reply.undivided is not None:
        # A prepared dataset's row: what its ids say can be audited, though nothing speaks for them but themselves.
        parts, note = _told_by_ids(given, ask.mode, contract, vocabulary)
        notes = (*notes, note)
    return structs.replace(
        plan,
        stretches=None,
        kept=given,
        source=IdsSource.GIVEN,
        status=RebuildStatus.TRUNCATED if cut else end,
        notes=(*reply.notes, *notes),
        reasoning=parts.reasoning,
        content=parts.content,
        tool_calls=parts.tool_calls,
    )


def _told_by_ids(ids: Sequence[int], mode: str, contract: Contract, vocabulary: Vocabulary) -> tuple[Parts, str]:
    """The parts that ids say by themselves, and a note: `text_from_ids`, or why they say none."""
    try:
        return divide(ids, mode, contract, vocabulary), "text_from_ids"
    except NotDividedError as error:
        return Parts(), error.note


def _keep_engine_ids(reply: Reply, ask: Ask, contract: Contract, vocabulary: Vocabulary) -> Plan:
    ids = list(reply.output_ids or ())
    complete = bool(ids) and ids[-1] in contract.terminal_ids
    notes = reply.notes
    if reply.undivided is None:
        beside = _plan_from_text(structs.replace(reply, output_ids=None, pieces=None), ask, contract, vocabulary)
        parts = Parts(reasoning=beside.reasoning, content=beside.content, tool_calls=beside.tool_calls)
    else:
        parts, note = read_engine_ids(ids, reply.undivided, ask.mode, contract, vocabulary)
        notes = notes if note is None else (*notes, note)
    return Plan(
        stretches=None,
        kept=ids,
        source=IdsSource.ENGINE,
        status=RebuildStatus.COMPLETE if complete else RebuildStatus.TRUNCATED,
        notes=notes,
        reasoning=parts.reasoning,
        content=parts.content,
        tool_calls=parts.tool_calls,
    )


def _plan_from_text(reply: Reply, ask: Ask, contract: Contract, vocabulary: Vocabulary) -> Plan:
    notes = list(reply.notes)
    parts = _Parts(reply.reasoning, reply.content, reply.tool_calls)
    try:
        stretches, status = _apply_rules(reply, parts, ask, contract, vocabulary, notes)
        source: IdsSource | None = IdsSource.REBUILT
    except _NoRuleError as no_rule:
        stretches, status, source = None, no_rule.status, None
        notes.extend(no_rule.notes)
        parts = _Parts(reply.reasoning, reply.content, reply.tool_calls)
    kept = _sampled(reply, stretches, vocabulary, notes)
    return Plan(
        stretches=stretches if kept is None else None,
        kept=kept,
        source=source if kept is None else IdsSource.LOGPROBS,
        status=status,
        notes=tuple(dict.fromkeys(notes)),
        reasoning=parts.reasoning,
        content=parts.content,
        tool_calls=parts.tool_calls,
    )


def _sampled(reply: Reply, stretches: Stretches | None, vocabulary: Vocabulary, notes: list[str]) -> list[int] | None:
    """Ids by the split that logprobs show; None, and a note where there are any, if they do not give the text."""
    if not reply.pieces or stretches is None:
        return None
    found = sampled_ids(stretches, reply.pieces, vocabulary, cut="cut_tail" in notes)
    if isinstance(found, str):
        notes.append(found)
        return None
    if "cut_tail" in notes:
        # How the cut word was split is known now.
        notes.remove("cut_tail")
    return found


@dataclass(slots=True)
class _Parts:
    """The text of a reply, as the rules move it to where it belongs."""

    reasoning: str | None
    content: str | None
    tool_calls: tuple[ToolCall, ...]

    def texts(self) -> list[str]:
        """Every text that goes into the ids."""
        of_calls = [text or "" for call in self.tool_calls for text in (call.id, call.arguments)]
        return [self.reasoning or "", self.content or "", *of_calls]

    def places(self) -> list[tuple[str, str]]:
        """(where, text) of all in which a marker may stand."""
        calls = [("tool_call", f"{call.id or ''}{call.arguments or ''}") for call in self.tool_calls]
        return [("reasoning", self.reasoning or ""), ("content", self.content or ""), *calls]


def _apply_rules(
    reply: Reply, parts: _Parts, ask: Ask, contract: Contract, vocabulary: Vocabulary, notes: list[str]
) -> tuple[Stretches, RebuildStatus]:
    if not _UNREADABLE.isdisjoint(notes):
        raise _NoRuleError(RebuildStatus.AMBIGUOUS)
    places = parts.places()
    if not all(is_storable(text) for _, text in places):
        raise _NoRuleError(RebuildStatus.AMBIGUOUS, "lone_surrogate")
    end = _end_of(reply, ask, contract)
    if end.note:
        notes.append(end.note)
    if end.kind is None:
        raise _NoRuleError(RebuildStatus.AMBIGUOUS)
    if any(vocabulary.specials_in(text) for _, text in places):
        # Every marker is the spelling of a special token: without any, none of these rules has anything to say.
        _take_terminal(parts, end, contract, notes)
        _take_tool_section(parts, end, contract, notes)
        _take_separator(reply, parts, ask, end, contract, vocabulary, notes)
        _refuse_markers(parts, contract, vocabulary, notes)
    _check_parts(parts, ask, end, contract)
    _check_calls(parts.tool_calls, ask.mode, end, contract)
    stretches = _lay_out(parts, ask.mode, end, contract)
    if end.kind == "length":
        # A tokenizer splits a cut word as if it ended there; what was sampled may differ in the last ids.
        notes.append("cut_tail")
        return stretches, RebuildStatus.TRUNCATED
    return stretches, RebuildStatus.AMBIGUOUS if end.at_cap else RebuildStatus.COMPLETE


# --- the end -----------------------------------------------------------------------------------


def _end_of(reply: Reply, ask: Ask, contract: Contract) -> _End:
    """Truncated if either reason says so; finished only if every reason that is there is known."""
    kind = contract.finish.kind_of(reply.finish_reason)
    native = contract.finish.kind_of(reply.native_finish_reason)
    if "length" in (kind, native):
        return _End("length", note=None if kind == native or native is None else "finish_reasons_differ")
    if kind is None:
        return _End(None, note="finish_unknown")
    if native is None and reply.native_finish_reason is not None:
        return _End(None, note="native_finish_unknown")
    if ask.stop:
        return _End(None, note="stop_string_sent")
    at_cap = (
        ask.max_tokens is not None and reply.completion_tokens is not None and reply.completion_tokens >= ask.max_tokens
    )
    calls = "tool_calls" in (kind, native)
    return _End(kind, at_cap=at_cap, calls=calls, note="stop_at_max_tokens" if at_cap else None)


# --- what stands in the text ---------------------------------------------------------------------


def _take_terminal(parts: _Parts, end: _End, contract: Contract, notes: list[str]) -> None:
    """A terminal spelled at the very end of the content of a finished answer is the terminal, once."""
    terminal = contract.terminals["stop"]
    if end.kind == "stop" and not parts.tool_calls and parts.content and parts.content.endswith(terminal):
        rest = parts.content.removesuffix(terminal)
        if terminal not in rest:
            parts.content = rest
            notes.append("terminal_in_text")


def _take_tool_section(parts: _Parts, end: _End, contract: Contract, notes: list[str]) -> None:
    """A whole tool section at the end of the content becomes calls; half a section stays, and is ambiguous."""
    form = contract.tools
    content = parts.content
    if form is None or not content or parts.tool_calls or content.count(form.section_begin) != 1:
        return
    if end.kind == "length":
        return
    before, _, section = content.partition(form.section_begin)
    begin, _, between, _, close = form.call
    escaped = [re.escape(spelling) for spelling in (begin, between, close)]
    pattern = (
        f"{escaped[0]}(?P<id>(?:(?!{escaped[1]}).)*?){escaped[1]}(?P<arguments>(?:(?!{escaped[2]}).)*){escaped[2]}"
    )
    call_pattern = re.compile(pattern, re.DOTALL)
    calls = []
    at = 0
    while match := call_pattern.match(section, at):
        call_id = match["id"]
        calls.append(ToolCall(id=call_id, name=name_in(call_id), arguments=match["arguments"]))
        at = match.end()
    if calls and section[at:] == form.section_end:
        parts.content, parts.tool_calls = before, tuple(calls)
        notes.append("tools_in_text")


def _take_separator(
    reply: Reply, parts: _Parts, ask: Ask, end: _End, contract: Contract, vocabulary: Vocabulary, notes: list[str]
) -> None:
    """One end-of-thinking in the content, reasoning empty, thinking mode: the separator, if the count agrees.

    A model that opens its thoughts itself must have opened them at the very beginning.
    Spelled as ordinary text it would be several ids instead of one, so the reported count tells the two
    apart: it agrees when it is the number of ids, or one less where the terminal is not counted.
    """
    if parts.reasoning or not parts.content or contract.think is None or not contract.mode(ask.mode).thinks:
        return
    marker = contract.think.end
    if parts.content.count(marker) != 1 or reply.completion_tokens is None:
        return
    reasoning, _, content = parts.content.partition(marker)
    output = contract.mode(ask.mode).output
    opening = "".join(output[: output.index("{reasoning}")])
    if not reasoning.startswith(opening):
        return
    reasoning = reasoning.removeprefix(opening)
    split = _Parts(reasoning, content, parts.tool_calls)
    if any(m in text for text in split.texts() for m in contract.markers):
        return
    if not reasoning or not (content or parts.tool_calls):
        return
    stretches = _lay_out(split, ask.mode, end, contract)
    (ids,) = encode_together([stretches], vocabulary.encode_packed)
    difference = len(unpacked(ids or b"")) - reply.completion_tokens
    if difference not in (0, 0 if end.kind == "length" or end.at_cap else 1):
        return
    parts.reasoning, parts.content = reasoning, content
    notes.append("separator_in_text")


def _refuse_markers(parts: _Parts, contract: Contract, vocabulary: Vocabulary, notes: list[str]) -> None:
    """Anything that still looks like a marker leaves open what the model emitted."""
    found = []
    for where, text in parts.places():
        for spelling in vocabulary.specials_in(text):
            if spelling in contract.markers:
                found.append(f"marker_in_{where}")
            else:
                notes.append("spells_special")
    if found:
        raise _NoRuleError(RebuildStatus.AMBIGUOUS, *dict.fromkeys(found))


# --- parts that are missing or do not fit --------------------------------------------------------


def _check_parts(parts: _Parts, ask: Ask, end: _End, contract: Contract) -> None:
    thinks = contract.mode(ask.mode).thinks
    if parts.reasoning and not thinks:
        raise _NoRuleError(RebuildStatus.AMBIGUOUS, "reasoning_in_instant_mode")
    if end.calls and not parts.tool_calls:
        raise _NoRuleError(RebuildStatus.AMBIGUOUS, "tool_calls_missing")
    answered = bool(parts.content) or bool(parts.tool_calls)
    if end.kind == "length":
        if not answered and not parts.reasoning:
            raise _NoRuleError(RebuildStatus.ANSWER_MISSING)
    elif not answered:
        raise _NoRuleError(RebuildStatus.ANSWER_MISSING)
    if thinks and not parts.reasoning:
        raise _NoRuleError(RebuildStatus.REASONING_MISSING)


def _check_calls(calls: Sequence[ToolCall], mode: str, end: _End, contract: Contract) -> None:
    """Calls go into the ids only as the model wrote them: a provider's own id hides the model's."""
    if not calls:
        return
    if contract.tools is None or "{tools}" not in contract.mode(mode).output:
        raise _NoRuleError(RebuildStatus.AMBIGUOUS, "tools_unsupported")
    for position, call in enumerate(calls):
        last_and_cut = end.kind == "length" and position == len(calls) - 1
        if call.id is None or (call.arguments is None and not last_and_cut):
            raise _NoRuleError(RebuildStatus.AMBIGUOUS, "tool_call_incomplete")
        if not contract.tools.id_matches(call.id, call.name):
            raise _NoRuleError(RebuildStatus.AMBIGUOUS, "tool_id_foreign")


# --- ids ---------------------------------------------------------------------------------------


def _lay_out(parts: _Parts, mode: str, end: _End, contract: Contract) -> Stretches:
    """Each stretch of text that is to be encoded by itself, with the contract's ids between."""
    stretches: list[str | bytes] = []
    for piece in _pieces(parts, contract.mode(mode).output, end, contract):
        last = stretches[-1] if stretches else None
        if isinstance(piece, str) and isinstance(last, str):
            stretches[-1] = last + piece
        elif piece:
            stretches.append(piece)
    return stretches


def _pieces(parts: _Parts, output: Sequence[str], end: _End, contract: Contract) -> list[str | bytes]:
    """Text (str) and special ids (packed) in order. A cut answer ends with the last part that began."""
    open_ended = end.kind == "length" or end.at_cap
    last = len(output)
    if open_ended:
        began = {"{reasoning}": parts.reasoning, "{content}": parts.content, "{tools}": parts.tool_calls}
        last = max((i + 1 for i, piece in enumerate(output) if began.get(piece)), default=0)
    pieces: list[str | bytes] = []
    for piece in output[:last]:
        if piece == "{reasoning}":
            pieces.append(parts.reasoning or "")
        elif piece == "{content}":
            pieces.append(parts.content or "")
        elif piece == "{tools}":
            pieces += _tool_pieces(parts.tool_calls, contract, cut=open_ended)
        elif piece == "{terminal}":
            terminal = contract.terminals["tool_calls" if parts.tool_calls else "stop"]
            pieces.append(packed_id(contract.id_of(terminal)))
        else:
            pieces.append(packed_id(contract.id_of(piece)) if piece in contract.special else piece)
    return pieces


def _tool_pieces(calls: Sequence[ToolCall], contract: Contract, *, cut: bool) -> list[str | bytes]:
    """The tool section; a cut one stays open after the last call's arguments."""
    form = contract.tools
    if not calls or form is None:
        return []
    pieces: list[str | bytes] = [packed_id(contract.id_of(form.section_begin))]
    for position, call in enumerate(calls):
        fields = {"{id}": call.id or "", "{arguments}": call.arguments or ""}
        stated = form.call[:-1] if cut and position == len(calls) - 1 else form.call
        pieces += [fields[piece] if piece in fields else packed_id(contract.id_of(piece)) for piece in stated]
    return pieces if cut else [*pieces, packed_id(contract.id_of(form.section_end))]
