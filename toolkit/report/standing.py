"""How datasets stand, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolkit.generate.spent import what_to_raise
from toolkit.generate.status import RunStatus
from toolkit.report.counts import tally
from toolkit.report.text import clean, dollars, duration, number, quantity, share
from toolkit.standing import Gate, Life, Standing, next_commands

_NAME_LIMIT = 60
_TEXT_LIMIT = 300
_LABEL = 12
_THIS_RUN = "this run"
_GATES = {
    Gate.NONE: "not audited",
    Gate.OUTDATED: "outdated: audit again",
    Gate.CLOSED: "closed: see reports/",
    Gate.INCOMPLETE: "passed so far, but not complete",
    Gate.DAMAGED: "closed: a shard is damaged or missing",
    Gate.PASSED: "passed",
    Gate.UNREADABLE: "verdict.json cannot be read: audit again",
}


def render_standing(standing: Standing) -> list[str]:
    """Everything about one dataset."""
    lines = [f"{clean(standing.dataset, _NAME_LIMIT)}: {life_sentence(standing)}"]
    lines += [f"  {label:<{_LABEL}}{text}" for label, text in _facts(standing)]
    lines += [f"  {'problem':<{_LABEL}}{clean(fault, _TEXT_LIMIT)}" for fault in standing.faults]
    commands = [clean(command, _TEXT_LIMIT) for command in next_commands(standing)]
    if commands:
        raised = what_to_raise(standing.run.spent) if standing.run is not None and standing.left else ""
        lines.append(f"  {'next':<{_LABEL}}{f'{raised}, then ' if raised else ''}{'; '.join(commands)}")
    return lines


def life_sentence(standing: Standing) -> str:
    """`asking, process 4711, heard of 0.4 s ago`."""
    run, silent = standing.run, duration(standing.silent_s or 0.0)
    if run is None:
        return "its run cannot be read" if standing.life is Life.UNKNOWN else "never generated here"
    phase = clean(run.phase, 20)
    if standing.life is Life.RUNNING:
        hangs = ": it does not answer for itself" if standing.is_silent else ""
        return f"{phase}, process {run.pid}, heard of {silent} ago{hangs}"
    if standing.life is Life.DIED:
        return f"died while {phase} (process {run.pid} is gone), last seen {silent} ago"
    if standing.life is Life.UNKNOWN:
        where = f" on {clean(run.host, _NAME_LIMIT)}" if run.host else ""
        return (
            f"{phase}{where}, process {run.pid}: from here nobody can tell whether it is alive; heard of {silent} ago"
        )
    return f"{phase} {silent} ago"


def _facts(standing: Standing) -> Iterator[tuple[str, str]]:
    run = standing.run
    if standing.prompts is not None:
        yield "prompts", number(standing.prompts)
    if run is not None:
        yield "answers", _progress(standing, run)
        if standing.life is Life.DIED:
            yield "as of", f"{duration(standing.silent_s or 0.0)} ago, the run's last word: tokens, cost and providers"
        tokens = _against(number(run.tokens), None if run.tokens_budget is None else number(run.tokens_budget))
        yield "tokens", f"{tokens} on disk, {number(run.run_tokens)} of them from {_THIS_RUN}"
        before = f"; {dollars(run.cost_before_usd)} before it" if run.cost_before_usd else ""
        yield "cost", f"{_cost(run)}, {_THIS_RUN}{before}"
        if standing.life is Life.RUNNING:
            yield from _pace(run)
        if run.providers:
            yield "providers", f"{tally(run.providers)}; {_THIS_RUN}"
        if run.resting:
            yield "resting", clean(", ".join(run.resting), _TEXT_LIMIT)
    if standing.failures:
        since = "of this run" if run is not None else "all on file, also where an answer came since"
        yield "failures", f"{tally(standing.failures)} ({since})"
    if run is not None and run.stopped is not None:
        yield "stopped", clean(run.stopped, _TEXT_LIMIT)
    if standing.rows is not None:
        waiting = f", {quantity(standing.unsealed, 'reply', 'replies')} in the journal" if standing.unsealed else ""
        yield "on disk", f"{quantity(standing.rows, 'row')}{waiting}"
    yield "gate", _GATES[standing.gate]
    for reason in standing.gate_reasons:
        yield "because", clean(reason, _TEXT_LIMIT)


def _progress(standing: Standing, run: RunStatus) -> str:
    answered, left = standing.answered or 0, standing.left or 0
    parts = [f"{number(answered)} of {number(run.asked)} ({share(answered, run.asked)})"]
    parts += [f"{number(count)} {word}" for count, word in ((run.failed, "failed"), (left, "left")) if count]
    if run.lost:
        parts.append(f"{number(run.lost)} in flight when stopped")
    if standing.taken_out:
        parts.append(f"{number(standing.taken_out)} taken out since")
    if run.probes:
        parts.append(quantity(run.probes, "probe"))
    return ", ".join(parts)


def _cost(run: RunStatus) -> str:
    told = dollars(run.cost_usd)
    if run.run_datasets > 1:
        told += f" ({dollars(run.run_cost_usd)} with all {number(run.run_datasets)} datasets)"
    if run.dollars_budget is None:
        return told
    told = _against(told, dollars(run.dollars_budget))
    if run.dollars_held > run.run_cost_usd * (1 + 1e-9):
        told += f" ({dollars(run.dollars_held)} held against it: what nobody priced counts as its most)"
    return told


def _pace(run: RunStatus) -> Iterator[tuple[str, str]]:
    eta = "" if run.eta_s is None else f", {duration(run.eta_s)} to go"
    yield "rate", f"{run.per_s:.1f} answers a second{eta}"
    limit = "" if run.per_s_limit is None else f", at most {run.per_s_limit:.1f} a second"
    paused = f", paused {duration(run.paused_s)}" if run.paused_s > 0 else ""
    yield "in flight", f"{number(run.in_flight)} of {number(run.limit)}{limit}{paused}"


def _against(found: str, limit: str | None) -> str:
    return found if limit is None else f"{found} of {limit}"


# --- several datasets ---------------------------------------------------------------------------

_COLUMNS = ("dataset", "state", "answered", "failed", "left", "tokens", "cost", "rate", "gate")


def render_standings(standings: Sequence[Standing]) -> list[str]:
    """A table, a line for each dataset, and what cannot be read."""
    if not standings:
        return ["no datasets: datasets/ holds no folder"]
    rows = [_COLUMNS, *(_cells(standing) for standing in standings)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_COLUMNS))]
    numeric = range(2, len(_COLUMNS) - 1)
    lines = [
        "  ".join(
            cell.rjust(width) if at in numeric else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    faults = [fault for standing in standings for fault in standing.faults]
    return lines + [f"problem: {clean(fault, _TEXT_LIMIT)}" for fault in faults]


def _cells(standing: Standing) -> tuple[str, ...]:
    run = standing.run
    name = clean(standing.dataset, _NAME_LIMIT)
    state = _state(standing)
    gate = str(standing.gate)
    if run is None:
        answered = "–" if standing.answered is None else number(standing.answered)
        return (name, state, answered, "–", "–", "–", "–", "–", gate)
    rate = f"{run.per_s:.1f}/s" if standing.life is Life.RUNNING else "–"
    counts = (standing.answered or 0, run.failed, standing.left or 0, run.tokens)
    # As of the tokens: all that was ever paid for this dataset, not what its last run was.
    cost = run.cost_usd + run.cost_before_usd
    return (name, state, *map(number, counts), dollars(cost), rate, gate)


def _state(standing: Standing) -> str:
    if standing.run is None:
        return "unreadable" if standing.life is Life.UNKNOWN else "–"
    if standing.life in (Life.RUNNING, Life.ENDED):
        return clean(standing.run.phase, 12)
    return str(standing.life)


def change_line(standing: Standing) -> str:
    """One line for a log: how it stands now."""
    run = standing.run
    name = clean(standing.dataset, _NAME_LIMIT)
    if run is None:
        return f"{name}: {life_sentence(standing)}"
    told = f"{name}: {_state(standing)}, {_progress(standing, run)}"
    return f"{told} · {clean(run.line(), _TEXT_LIMIT)}" if standing.life is Life.RUNNING else told
