"""The replies of a preflight, rebuilt and audited as rows of the dataset will be. Pure.

One reply proves little: a way of counting is learned from many rows, and a space that is not there may never have been
sampled. So what one reply cannot show is `unknown`, with what would explain it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from toolkit.audit.conventions import MIN_SUPPORT, Hypothesis, completion_hypotheses, prompt_hypotheses
from toolkit.audit.evidence import judge
from toolkit.audit.measure import measure
from toolkit.columns import SHARD_SCHEMA
from toolkit.contract import Contract
from toolkit.generate.outcome import Answered, Refused
from toolkit.generate.plan import Planned
from toolkit.generate.preflight.checks import Check, Result
from toolkit.generate.preflight.estimate import Seen
from toolkit.generate.preflight.trial import Heard
from toolkit.generate.preparing import Job
from toolkit.records import Evidence, IdsSource, RebuildStatus
from toolkit.rows import RowBuilder

_SETTLED = (str(RebuildStatus.COMPLETE), str(RebuildStatus.TRUNCATED))
_MARKERS = frozenset(
    {
        "terminal_in_text", "separator_in_text", "tools_in_text", "marker_in_reasoning", "marker_in_content",
        "marker_in_tool_call",
    }
)  # fmt: skip
"""Notes that say that control ids came as text."""
_EDGES = tuple(f"{part}_{edge}_space" for part in ("reasoning", "content") for edge in ("leading", "trailing"))
_CALL_NOTES = frozenset({"tool_id_foreign", "tools_in_text"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One answer: its row, the facts of it with what they are judged to be, and what it was asked."""

    name: str
    ask: Planned
    row: dict[str, Any]
    facts: dict[str, Any]
    counts: tuple[str, ...]
    prompts: tuple[str, ...]

    @property
    def is_sound(self) -> bool:
        """Whether its ids could be rebuilt in the contract's form."""
        return self.row["rebuild_status"] in _SETTLED and self.facts["structure"] is None


def trial_checks(job: Job, heard: Sequence[Heard]) -> Iterator[Check]:
    """What came of all turns."""
    about = job.dataset.name
    for one in heard:
        if not isinstance(one.came, Answered):
            yield _unanswered_check(about, one)
    rows = _rows_of(job, [one for one in heard if isinstance(one.came, Answered)])
    for row in rows:
        yield from _row_checks(about, job, row, rows)
    sent = [one for one in heard if one.came is not None]
    if sent:
        sound = sum(row.is_sound for row in rows)
        result = Result.OK if sound else Result.FAIL
        found = f"{sound} of {len(sent)} {'reply gives a sound row' if len(sent) == 1 else 'replies give sound rows'}"
        yield Check(about=about, what="replies", result=result, found=found, expected="at least one")


def seen_in(heard: Sequence[Heard]) -> list[Seen]:
    """What the answers took, where they say it."""
    return [
        Seen(tokens=tokens, latency_s=one.came.entry.latency_s)
        for one in heard
        if isinstance(one.came, Answered) and (tokens := one.came.reply.completion_tokens) is not None
    ]


# --- no answer ------------------------------------------------------------------------------------


def _unanswered_check(about: str, heard: Heard) -> Check:
    provider = heard.turn.slug
    if not isinstance(heard.came, Refused):
        return Check(about=about, what="request", provider=provider, result=Result.UNKNOWN, found=heard.unsent)
    failure = heard.came.failure
    found = f"{failure.reason}: {failure.detail}"
    if failure.reason == "provider_not_allowed":
        return Check(about=about, what="who answered", provider=provider, result=Result.FAIL, found=found)
    if failure.reason == "model_mismatch":
        return Check(about=about, what="model", provider=provider, result=Result.WARN, found=found)
    # What would stop a run at its first reply stops it here.
    hopeless = heard.came.stops_run is not None or failure.reason in ("ids_missing", "secret_echoed")
    result = Result.FAIL if hopeless else Result.WARN
    return Check(about=about, what="request", provider=provider, result=result, found=found, expected="an answer")


# --- answers ----------------------------------------------------------------------------------------


def _rows_of(job: Job, answered: Sequence[Heard]) -> list[_Row]:
    if not answered:
        return []
    contract = job.contract
    builder = RowBuilder(contract, job.vocabulary)
    rows = [builder.build(one.came.entry, one.came.reply) for one in answered if isinstance(one.came, Answered)]
    table = pa.Table.from_pylist(rows, schema=SHARD_SCHEMA)
    facts = pl.DataFrame(measure(table, contract, job.vocabulary, shard_sha256="preflight"))
    judged = judge(facts, contract, allowed_providers=job.settings.providers).facts.to_dicts()
    counts = _explained(facts, "count_difference", completion_hypotheses(contract))
    prompts = _explained(facts, "prompt_difference", prompt_hypotheses(contract))
    return [
        _Row(
            name=row["provider"] or one.turn.slug or job.endpoint.name, ask=one.turn.ask, row=row, facts=judged[at],
            counts=counts[at], prompts=prompts[at],
        )
        for at, (one, row) in enumerate(zip(answered, rows, strict=True))
    ]  # fmt: skip


def _explained(facts: pl.DataFrame, observed: str, hypotheses: Sequence[Hypothesis]) -> list[tuple[str, ...]]:
    """Of each row the ways of counting that give its difference; of those that say the same of it, the simplest."""
    hits = facts.select(
        (pl.col(observed) == hypothesis.difference).fill_null(False).alias(str(at))
        for at, hypothesis in enumerate(hypotheses)
    )
    found = [[hypotheses[at].name for at, hit in enumerate(row) if hit] for row in hits.iter_rows()]
    # What names a part that the row does not have only repeats another.
    has_calls = [bool(count) for count in facts["n_tool_markers"]]
    return [
        tuple(name for name in names if calls or "tool markers" not in name)
        for names, calls in zip(found, has_calls, strict=True)
    ]


def _row_checks(about: str, job: Job, row: _Row, rows: Sequence[_Row]) -> Iterator[Check]:
    for what, result, found in (
        _who(row), _model(row, job), _finish(row, job.contract), _rebuilt(row), _count(row), _prompt(row),
        _space(row, rows), _markers(row), _reasoning(row, job.contract), *_calls(row), *_ids(row, job),
    ):  # fmt: skip
        yield Check(about=about, what=what, provider=row.name, result=result, found=found)


Found = tuple[str, Result, str]


def _who(row: _Row) -> Found:
    if row.row["provider"] is None:
        result = Result.OK if row.facts["provider_matches_source"] else Result.UNKNOWN
        return "who answered", result, "the reply names no provider"
    if row.facts["provider_allowed"] is False:
        return "who answered", Result.WARN, f"{row.row['provider']}: not among the dataset's providers"
    return "who answered", Result.OK, str(row.row["provider"])


def _model(row: _Row, job: Job) -> Found:
    if row.facts["model_named"]:
        return "model", Result.OK, str(row.row["model"])
    if job.endpoint.api == "generate":
        return "model", Result.OK, "replies of /generate name none"
    return "model", Result.WARN, f"the reply names none; {row.row['model']} is assumed"


def _finish(row: _Row, contract: Contract) -> Found:
    reason, native = row.row["finish_reason"], row.row["native_finish_reason"]
    told = " / ".join(f"{word!r:.60}" for word in (reason, native))
    kind, native_kind = contract.finish.kind_of(reason), contract.finish.kind_of(native)
    if kind is None or (native is not None and native_kind is None):
        return "finish", Result.WARN, f"{told}: not known to the contract, so such rows are ambiguous"
    if native_kind not in (None, kind):
        return "finish", Result.WARN, f"{told}: they disagree"
    return "finish", Result.OK, told


def _rebuilt(row: _Row) -> Found:
    status, structure = row.row["rebuild_status"], row.facts["structure"]
    notes = ", ".join(row.row["notes"])
    told = f"{status}{f', {structure}' if structure else ''}{f' ({notes})' if notes else ''}"
    if not row.is_sound:
        return "row", Result.WARN, f"{told}: no sound ids"
    evidence = row.facts["evidence"]
    why = row.facts["evidence_reason"]
    # A handful of rows teaches no way of counting; what speaks against a row needs no others.
    result = Result.WARN if evidence == str(Evidence.CONTRADICTED) else Result.OK
    return "row", result, f"{told}, {evidence}{f': {why}' if why else ''}"


def _count(row: _Row) -> Found:
    difference, ids, reported = (row.facts[name] for name in ("count_difference", "n_ids", "completion_tokens"))
    if difference is None:
        missing = "no completion_tokens are reported" if reported is None else "there are no ids to count"
        return "count", Result.UNKNOWN, missing
    told = f"{ids:,} ids, {reported:,} reported"
    if difference == 0:
        return "count", Result.OK, f"{told}: {'; '.join(row.counts[:1])}" if row.counts else told
    if not row.counts:
        return "count", Result.WARN, f"{told}: no way of counting that the contract knows explains it"
    return "count", Result.UNKNOWN, f"{told}: {' or '.join(row.counts)}; {MIN_SUPPORT} rows have to show it"


def _prompt(row: _Row) -> Found:
    difference, ids, reported = (row.facts[name] for name in ("prompt_difference", "n_prompt_ids", "prompt_tokens"))
    if difference is None:
        missing = "no prompt_tokens are reported" if reported is None else "the prompt cannot be rendered"
        return "prompt", Result.UNKNOWN, missing
    told = f"{ids:,} ids rendered, {reported:,} reported"
    if difference == 0:
        return "prompt", Result.OK, told
    if not row.prompts:
        tools = " (tools are declared)" if row.ask.tools else ""
        return "prompt", Result.WARN, f"{told}: it answers another prompt than ours{tools}"
    return "prompt", Result.UNKNOWN, f"{told}: {' or '.join(row.prompts)}; {MIN_SUPPORT} rows have to show it"


def _space(row: _Row, rows: Sequence[_Row]) -> Found:
    own = _has_edges(row)
    if own:
        return "white space", Result.OK, "kept at the ends of the text"
    if own is None:
        return "white space", Result.UNKNOWN, "there is no text to see it in"
    others = sorted({other.name for other in rows if other.name != row.name and _has_edges(other)})
    if others:
        found = f"none at either end of the text, but in the replies of {', '.join(others)}: it may be trimmed"
        return "white space", Result.WARN, found
    return (
        "white space",
        Result.UNKNOWN,
        "none at either end of the text: one reply does not show whether it is trimmed",
    )


def _has_edges(row: _Row) -> bool | None:
    """Whether a part begins or ends in white space; None where there is no text."""
    known = [row.facts[name] for name in _EDGES if row.facts[name] is not None]
    return any(known) if known else None


def _markers(row: _Row) -> Found:
    found = sorted(_MARKERS & set(row.row["notes"]))
    if found:
        return "think markers", Result.WARN, f"control ids came as text: {', '.join(found)}"
    return "think markers", Result.OK, "none in the text"


def _reasoning(row: _Row, contract: Contract) -> Found:
    mode, reasoning = row.row["mode"], row.row["reasoning"]
    if contract.mode(mode).thinks:
        if reasoning:
            return "reasoning", Result.OK, f"{len(reasoning):,} characters"
        return "reasoning", Result.WARN, f"none, although the mode {mode} thinks: it may be withheld"
    if reasoning:
        return "reasoning", Result.WARN, f"{len(reasoning):,} characters, although the mode {mode} does not think"
    return "reasoning", Result.OK, f"none, as the mode {mode} has it"


def _calls(row: _Row) -> Iterator[Found]:
    if not row.ask.tools:
        return
    fault, notes = row.facts["tool_fault"], sorted(_CALL_NOTES & set(row.row["notes"]))
    if row.row["tool_calls"] is None and not notes:
        yield "calls", Result.UNKNOWN, "tools were declared, and none was called"
    elif fault is not None or notes:
        yield "calls", Result.WARN, ", ".join([*([fault] if fault else []), *notes])
    else:
        yield "calls", Result.OK, "in the contract's form"


def _ids(row: _Row, job: Job) -> Iterator[Found]:
    source = row.row["ids_source"]
    if job.endpoint.ids != "off":
        own = source == str(IdsSource.ENGINE)
        yield "ids", Result.OK if own else Result.WARN, "the engine's own" if own else f"asked for, found {source}"
    if job.endpoint.logprobs:
        own = source == str(IdsSource.LOGPROBS)
        yield "logprobs", Result.OK if own else Result.WARN, "of every token" if own else f"ids are {source}"
