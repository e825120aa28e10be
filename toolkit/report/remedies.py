"""What to do about rows that are not proved, for each provider and reason."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from toolkit.records import Origin, ProviderSummary, Verdict
from toolkit.report.doubts import NAME_LIMIT, by_size, group_name
from toolkit.report.text import clean, number, quantity, readable

_LISTED = 6
_NEEDED = re.compile(r"([\d,]{1,12}) rows tell it from counting every id; (\d{1,6}) are needed")

_REMEDIES = {
    "no_ids": "see their rebuild status and notes in the report; where the reply does not say how it ended, keep its "
    "finish_reason when you store replies",
    "no_text": "keep the text of replies beside their ids when you store them",
    "no_count": "keep usage when you store replies; for ids of a local engine import with --local-ids-are-engine",
    "rebuild_status": "keep finish_reason when you store replies, and take out what stays unclear",
    "text_altered": "no count can prove its text: do without it, or ask a provider or engine that does not alter text",
    "count": "hold the text that you stored against what came: it must be whole and unchanged",
    "reasoning_count": "hold the reasoning that you stored against what came: it must be whole and unchanged",
    "tool_json_reserialised": "it writes tool arguments anew: do without its calls, or store arguments as received",
    "structure": "open some of its rows: what is wrong there, and where, says whether it is the contract, the mode, "
    "the tokenizer that wrote the ids, or a rule of the rebuild",
    "text": "hold the ids against the reply that they came with",
    "encoding": "rebuild the rows with this version: tokenproof rebuild",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do now, and the command for it where there is one."""

    says: str
    command: str | None = None


def remedies_of(verdict: Verdict) -> Iterator[Step]:
    """A step for each provider and reason, those that concern most rows first."""
    found = [(rows, group, code) for group in verdict.providers for code, rows in by_size(group.evidence_reasons)]
    for rows, group, code in sorted(found, key=lambda one: (-one[0], group_name(one[1]), one[2]))[:_LISTED]:
        told = _convention_unknown(verdict, group) if code == "convention_unknown" else _REMEDIES.get(code)
        if told is not None:
            command = _discard(verdict, group, code)
            if command and verdict.origins.get(Origin.GENERATE):
                told += "; name it in the endpoint's provider.ignore too, or it may be asked again"
            yield Step(f"{group_name(group)}, {quantity(rows, 'row')} {code}: {told}", command)


def _convention_unknown(verdict: Verdict, group: ProviderSummary) -> str:
    """More rows where rows are wanting; else what was found instead of one way of counting.

    Of one that alters text no count would prove anything, however it counts.
    """
    altered = [a for a in verdict.learned.alterations if (a.source, a.provider) == (group.source, group.provider)]
    if altered:
        return f"it {clean(altered[0].code, 20)} text, so {_REMEDIES['text_altered']}"
    whys = [
        found.completion.why
        for found in verdict.learned.conventions
        if (found.source, found.provider) == (group.source, group.provider) and found.completion.why
    ]
    for why in whys:
        if match := _NEEDED.fullmatch(why):
            more = max(int(match[2]) - int(match[1].replace(",", "") or 0), 1)
            return (
                f"{number(more)} more rows of it are needed that tell how it counts ({match[2]}): "
                "ask for more (tokenproof generate --samples), or do without it"
            )
    told = f" ({readable(clean(whys[0], 120))})" if whys else ""
    return f"no one way of counting explains its rows{told}: do without it, or ask for more rows"


def _discard(verdict: Verdict, group: ProviderSummary, code: str) -> str | None:
    """The command that takes them out, for a provider that one would rather do without."""
    if group.provider is None or code not in ("convention_unknown", "text_altered"):
        return None
    name = clean(group.provider, NAME_LIMIT)
    value = f'"{name}"' if "," in name else name
    where = shlex.quote(f"provider={value}")
    return f"tokenproof discard {shlex.quote(clean(verdict.dataset, NAME_LIMIT))} --where {where} --reason {code}"
