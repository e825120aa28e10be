"""What to do now, by cause: storage, suite, data, generation. Only commands that exist are named."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from toolkit.records import Accounting, ExpectationResult, Origin, Verdict
from toolkit.report.counts import merge_sentence, without_prompt, written_by_merge
from toolkit.report.doubts import NAME_LIMIT
from toolkit.report.outcome import closes_gate, is_unsettled, quarantine_too_large, sort_results
from toolkit.report.remedies import Step as Step
from toolkit.report.remedies import remedies_of
from toolkit.report.text import clean, number, quantity

_NOT_RENDERED = "prompt_not_rendered"
"""The note of a row whose prompt is there, but gave no ids."""


def next_steps(verdict: Verdict) -> tuple[Step, ...]:
    """What to do now; the last step is the audit again, or the merge."""
    name = clean(verdict.dataset, NAME_LIMIT)
    dataset = shlex.quote(name)
    if verdict.passed and verdict.complete:
        return (*_prompts_to_give(verdict, name), *_merge(verdict, dataset))
    steps: list[Step] = []
    if verdict.unreadable:
        steps += _restore(verdict, name)
    if verdict.rows and not is_unsettled(verdict):
        steps += _mend(verdict)
    if verdict.strays:
        files = "it" if len(verdict.strays) == 1 else "them"
        steps.append(Step(f"move {files} out of datasets/{name}/shards/"))
    if not verdict.complete and not verdict.unreadable:
        steps += _finish(verdict, dataset)
    return (*steps, Step("then audit again", f"audit {dataset}"))


def _merge(verdict: Verdict, dataset: str) -> tuple[Step, ...]:
    if written_by_merge(verdict) == 0:
        return ()
    told = merge_sentence(verdict) or (
        f"leaves out {quantity(verdict.quarantined, 'quarantined row')}" if verdict.quarantined else ""
    )
    return (Step(f"merge it ({told})" if told else "merge it", f"tokenproof merge {dataset} -o train/{dataset}"),)


def _prompts_to_give(verdict: Verdict, name: str) -> list[Step]:
    """Imported rows whose prompt was not there get it when the same files are imported again."""
    if not (lost := without_prompt(verdict)):
        return []
    verb = "lacks" if lost == 1 else "lack"
    if verdict.has_renderer is False and verdict.notes.get(_NOT_RENDERED, 0):
        return [
            Step(
                f"{quantity(lost, 'row')} {verb} the ids of the prompt, and contract "
                f"{clean(verdict.contract, NAME_LIMIT)} has no renderer that would "
                "give them: only rows whose prompt ids the engine gave can be merged"
            )
        ]
    return [
        Step(
            f"{quantity(lost, 'row')} {verb} the ids of the prompt; to keep them, put the prompts under the same ids "
            f"into datasets/{name}/prompts.jsonl, and import the same files again",
            f"tokenproof import {shlex.quote(name)} FILE…",
        )
    ]


def _restore(verdict: Verdict, name: str) -> list[Step]:
    shards = quantity(len(verdict.unreadable), "damaged or missing shard")
    anew = f"{name}_again"
    return [
        Step(f"put {shards} back from a copy of yours, byte for byte as sealed"),
        Step(
            f"no copy? make the answers anew in another dataset: copy prompts.jsonl into datasets/{anew}/ and import "
            "the files that you had",
            f"tokenproof import {shlex.quote(anew)} FILE…",
        ),
        Step("or ask again", f"tokenproof generate {shlex.quote(anew)}"),
    ]


def _mend(verdict: Verdict) -> list[Step]:
    steps = []
    found = [sort_results(run) for run in verdict.suites]
    fails = [r for f in found for r in (*(r for group in f.unjudged for r in group.results), *f.failing)]
    closing = [result for result in fails if closes_gate(result)]
    if broken := [result for result in closing if result.error is not None]:
        steps.append(Step(f"correct the suite: {_names(broken)} could not be evaluated"))
    if failing := [result for result in closing if result.error is None]:
        if any(result.kwargs.get("column") == "evidence" for result in failing):
            steps += remedies_of(verdict)
        rows = "; quarantine.parquet lists all of them" if any(result.scope == "row" for result in failing) else ""
        steps.append(Step(f"look at what fails {_names(failing)}{rows}; mend the cause where the rows come from"))
    if quarantine_too_large(verdict):
        steps.append(Step("find out why so many rows are in quarantine: its reasons are counted below"))
    return steps


def _finish(verdict: Verdict, dataset: str) -> list[Step]:
    accounting = verdict.accounting
    if accounting.at_work:
        return [Step("wait until the run that is at work has ended", f"tokenproof status {dataset} --watch")]
    anew = _ask_anew(accounting, dataset)
    if not accounting.unanswered:
        if anew or not accounting.unsettled:
            return anew
        return [Step("seal what waits in the journal; nothing is asked twice", f"tokenproof generate {dataset}")]
    steps = []
    missing = "missing answer" if accounting.unanswered == 1 else f"{number(accounting.unanswered)} missing answers"
    if verdict.origins.get(Origin.IMPORT):
        steps.append(Step(f"import the {missing}", f"tokenproof import {dataset} FILE…"))
    asks = f"ask for the {missing}; nothing that is answered is asked again"
    steps.append(Step(f"or {asks}" if steps else asks, f"tokenproof generate {dataset}"))
    if any(accounting.missing_reasons):
        steps.append(Step(f"see what came for them and why it gave no row: datasets/{dataset}/failures/"))
    steps.append(Step(f"or take prompts that nobody is to answer out of datasets/{dataset}/prompts.jsonl"))
    return [*steps, *anew]


def _ask_anew(accounting: Accounting, dataset: str) -> list[Step]:
    """What to do about answers to something else than is asked now; imported ones are never asked for anew."""
    steps = []
    if count := accounting.changed:
        answers = "the changed answer" if count == 1 else f"the {number(count)} changed answers"
        says = f"ask for {answers} anew, or put prompts and settings back as they were"
        steps.append(Step(says, f"tokenproof generate {dataset}"))
    if count := accounting.changed_imports:
        prompts = "the prompt" if count == 1 else f"the {number(count)} prompts"
        says = (
            f"put {prompts} of imported answers back, or import the files again, with the options that they were first "
            "imported with, if they answer what stands there now"
        )
        steps.append(Step(says, f"tokenproof import {dataset} FILE… --replace"))
    return steps


def _names(results: Sequence[ExpectationResult]) -> str:
    names = [clean(result.id, NAME_LIMIT) for result in results[:3]]
    return ", ".join(names) + (f" and {len(results) - 3} more" if len(results) > 3 else "")
