"""The fault bench: good rows, faults put into them, the audit's own kernel and judgement, and what it found.

A good row that is told off is a false alarm. A fault of trace "row" that is not told with one of its reasons is a
miss, whatever else was said of the row.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from tests.faults.good_rows import COUNTINGS, ENGINE, PROVIDERS, Author
from tests.faults.injections import BEARS, FAULTS, OF_PROVIDERS, VICTIM, World, other_split
from toolkit.audit.drift import find_drift
from toolkit.audit.evidence import Judged, judge
from toolkit.audit.gx.evaluate import evaluate
from toolkit.audit.measure import measure
from toolkit.audit.providers import provider_table
from toolkit.audit.suite import Suite, read_suite, shipped_suite
from toolkit.columns import JUDGED_SCHEMA, SHARD_SCHEMA
from toolkit.contract import read_contract
from toolkit.records import RebuildStatus
from toolkit.vocabulary import Vocabulary, load_vocabulary

SHA = "5a" * 32
MAX_FALSE_ALARMS = 0.0001
"""Share of good rows."""
ENGINE_SPLITS = 0.03
"""Share of the engine's good rows whose ids are another split of their text than a tokenizer's."""

_KINDS = Path(__file__).with_name("kinds.toml")
_TRIES = 20
_PROVIDER_ROWS = 40_000
"""Good rows of the runs in which a whole provider does something."""
Row = dict[str, Any]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One entry of kinds.toml; `what` stands behind its name."""

    name: str
    what: str
    trace: str
    rate: float
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one kind.

    Attributes:
        injected: Rows that bear it; for providers, 1.
        found: Those of which anything was said.
        named: Those of which one of the kind's reasons was said.
        missed: sample_ids of rows that were not named, with what was said of them instead; at most 10.
        pending: Nothing looks for it yet.
    """

    kind: Kind
    injected: int
    found: int
    named: int
    missed: tuple[str, ...] = ()
    pending: bool = False

    @property
    def holds(self) -> bool:
        """Whether the bench may pass: all of it named, or nothing promised."""
        return self.pending or self.kind.trace == "none" or (self.injected > 0 and self.named == self.injected)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One run.

    Attributes:
        alarms: sample_id and codes of good rows that were told off.
        unproved: Good rows that were not proved, and not told off either.
    """

    seed: int
    rows: int
    good: int
    outcomes: tuple[Outcome, ...]
    alarms: tuple[str, ...]
    unproved: int
    accused: tuple[str, ...] = ()
    unknown: tuple[str, ...] = field(default=())

    @property
    def failures(self) -> list[str]:
        """Why the run does not hold, a sentence each."""
        wrong = [
            f"{o.kind.name}: {o.named:,} of {o.injected:,} found with {', '.join(o.kind.reasons)}; "
            f"missed {', '.join(o.missed)}"
            for o in self.outcomes
            if not o.holds
        ]
        if len(self.alarms) > MAX_FALSE_ALARMS * self.good:
            wrong.append(
                f"false alarms: {len(self.alarms):,} of {self.good:,} good rows: {', '.join(self.alarms[:10])}"
            )
        wrong += [f"accused without reason: {words}" for words in self.accused]
        return wrong + [f"convention not learned: {words}" for words in self.unknown]


def read_kinds() -> list[Kind]:
    """The kinds, in the order of the file."""
    text = _KINDS.read_text(encoding="utf-8")
    table = tomllib.loads(text)
    what = dict(re.findall(r"^\[(\w+)\]\s*# (.+)$", text, re.MULTILINE))
    return [
        Kind(name=name, what=what[name], trace=entry["trace"], rate=entry["rate"], reasons=tuple(entry["reasons"]))
        for name, entry in table.items()
    ]


class Bench:
    """One run over `rows` rows; the same seed gives the same rows and faults."""

    def __init__(self, rows: int, seed: int, vocabulary: Vocabulary, tell: Callable[[str], None] = lambda _: None):
        self.rows, self.seed, self.vocabulary, self.tell = rows, seed, vocabulary, tell
        self.contract = vocabulary.contract
        self.kinds = read_kinds()
        path = shipped_suite(self.contract.name)
        self.suite: Suite = read_suite(path)
        self.draw = random.Random(seed)
        self._other = load_vocabulary(read_contract("qwen3"))
        self._token_of = {token: i for i, token in enumerate(vocabulary.base) if token}

    def run(self) -> Report:
        """Write, inject, measure, judge, tell."""
        good = self.with_engine_splits(Author(self.vocabulary, self.seed).write(self.rows))
        self.tell(f"{self.rows:,} good rows")
        injected, partners = self._inject(good)
        table = _replaced(good, {at: row for at, (_, row) in injected.items()})
        self.tell(f"{len(injected):,} faults injected")
        facts = self.measure(table)
        judged = self.judge(facts)
        self.tell("measured and judged")
        codes = self.codes(judged)
        self.tell("held against the shipped suite")
        outcomes = self._outcomes(injected, codes, judged.facts)
        told = set(injected) | partners
        others = [at for at in range(self.rows) if at not in told]
        alarms = [f"{judged.facts['sample_id'][at]} ({', '.join(sorted(codes[at]))})" for at in others if codes[at]]
        unproved = judged.facts["evidence"].is_in(["unverified"]).to_numpy()[others].sum()
        of_providers, accused = self._providers(good.slice(0, _PROVIDER_ROWS))
        return Report(
            seed=self.seed,
            rows=self.rows,
            good=len(others),
            outcomes=tuple(sorted([*outcomes, *of_providers], key=lambda o: self.kinds.index(o.kind))),
            alarms=tuple(alarms),
            unproved=int(unproved),
            accused=tuple(accused),
            unknown=tuple(wrong_conventions(judged)),
        )

    # --- good rows and faults -----------------------------------------------------------------------

    def with_engine_splits(self, good: pa.Table) -> pa.Table:
        """An engine's ids are what was sampled, also where a tokenizer would have split otherwise: no fault."""
        engine = np.flatnonzero(good["source"].to_numpy() == "sglang")
        chosen = [int(at) for at in engine if self.draw.random() < ENGINE_SPLITS]
        changed = {}
        for at, row in zip(chosen, _dicts(good, chosen), strict=True):
            tries = (other_split(row["output_ids"], self._world(lambda _: None)) for _ in range(_TRIES))
            split = next((found for found in tries if found), None)
            if split is not None:
                more = len(split) - len(row["output_ids"])
                changed[at] = row | {"output_ids": split, "completion_tokens": row["completion_tokens"] + more}
                if row["reasoning_tokens"]:
                    end = self.contract.id_of("</think>")
                    changed[at]["reasoning_tokens"] = split.index(end) if end in split else len(split)
        return _replaced(good, changed)

    def _world(self, donor: Callable[[Row], Row | None]) -> World:
        return World(
            vocabulary=self.vocabulary,
            other=self._other.encode_ordinary,
            draw=self.draw,
            donor=donor,
            token_of=self._token_of,
        )

    def _inject(self, good: pa.Table) -> tuple[dict[int, tuple[Kind, Row]], set[int]]:
        """Row → (kind, faulty row), and the good rows that a fault of another one concerns."""
        frame = pl.from_arrow(good.select(["source", "provider", "mode", "tool_calls", "content", "reasoning",
                                           "rebuild_status", "ids_source", "streamed"]))  # fmt: skip
        assert isinstance(frame, pl.DataFrame)
        parts = [pl.col(name).is_not_null() for name in ("tool_calls", "content", "reasoning")]
        shape = pl.struct(
            "source", "provider", "mode", "rebuild_status", "streamed", *(e.alias(f"_{i}") for i, e in enumerate(parts))
        )
        shapes = frame.select(shape.rank("dense")).to_series().to_numpy()
        free = np.ones(self.rows, dtype=bool)
        injected: dict[int, tuple[Kind, Row]] = {}
        partners: set[int] = set()
        for kind in self.kinds:
            if kind.name not in FAULTS:
                continue
            bears = frame.select(BEARS[kind.name]).to_series().to_numpy() if kind.name in BEARS else free
            can = np.flatnonzero(np.broadcast_to(bears, free.shape) & free).tolist()
            wanted = max(1, round(kind.rate * np.broadcast_to(bears, free.shape).sum()))
            chosen = self.draw.sample(can, min(len(can), wanted * 2))
            made = 0
            for at, row in zip(chosen, _dicts(good, chosen), strict=True):
                if made == wanted:
                    break
                if not free[at]:
                    continue
                used: list[int] = []
                world = self._world(lambda _, at=at, used=used: self._donor(good, shapes, free, at, used))
                faulty = next((f for f in (FAULTS[kind.name](row, world) for _ in range(_TRIES)) if f), None)
                if faulty is None:
                    continue
                if kind.trace == "dataset":
                    partners.update(used[-1:])
                    free[used[-1:]] = False
                injected[at] = kind, faulty
                free[at] = False
                made += 1
        return injected, partners - set(injected)

    def _donor(self, good: pa.Table, shapes: Any, free: Bools, at: int, used: list[int]) -> Row | None:
        """Another good row of the same shape."""
        for _ in range(200):
            other = self.draw.randrange(self.rows)
            if other != at and free[other] and shapes[other] == shapes[at]:
                used.append(other)
                return _dicts(good, [other])[0]
        return None

    # --- measuring and judging ------------------------------------------------------------------------

    def measure(self, table: pa.Table) -> pl.DataFrame:
        """Facts."""
        facts = pl.from_arrow(measure(table, self.contract, self.vocabulary, shard_sha256=SHA))
        assert isinstance(facts, pl.DataFrame)
        return facts

    def judge(self, facts: pl.DataFrame) -> Judged:
        """Judged facts."""
        return judge(facts, self.contract, allowed_providers=PROVIDERS)

    def codes(self, judged: Judged) -> list[set[str]]:
        """What was said of each row: reason codes of the facts, and ids of the shipped suite's expectations."""
        table = judged.facts.to_arrow().select(JUDGED_SCHEMA.names).cast(JUDGED_SCHEMA)
        said: list[set[str]] = [set() for _ in range(len(judged.facts))]
        for identity, positions in evaluate(self.suite, table).failing.items():
            # A row that is not proved is kept out of the merge, but nobody says that it is wrong.
            if identity not in _NOT_PROVED:
                for at in positions.tolist():
                    said[at].add(identity)
        for at, found in zip(*_fact_codes(judged.facts), strict=True):
            said[at].add(found)
        return said

    def _outcomes(
        self, injected: dict[int, tuple[Kind, Row]], codes: Sequence[set[str]], facts: pl.DataFrame
    ) -> list[Outcome]:
        by_kind: dict[str, list[int]] = {}
        for at, (kind, _) in injected.items():
            by_kind.setdefault(kind.name, []).append(at)
        outcomes = []
        for kind in self.kinds:
            if kind.name not in FAULTS:
                continue
            rows = by_kind.get(kind.name, [])
            named = [at for at in rows if codes[at] & set(kind.reasons)]
            missed = [at for at in rows if at not in set(named)]
            column = _HEALTH_FACTS.get(kind.name)
            outcomes.append(
                Outcome(
                    kind=kind,
                    injected=len(rows),
                    found=sum(bool(codes[at]) for at in rows),
                    named=len(named),
                    missed=tuple(f"{facts['sample_id'][at]} ({_words(facts, at, codes[at])})" for at in missed[:10]),
                    pending=column is not None and facts[column].null_count() == len(facts),
                )
            )
        return outcomes

    # --- whole providers ------------------------------------------------------------------------------

    def _providers(self, good: pa.Table) -> tuple[list[Outcome], list[str]]:
        """Each fault of a provider in a run of its own over the same good rows, and who was accused wrongly."""
        facts = self.measure(good)
        victims = np.flatnonzero(good["provider"].to_numpy() == VICTIM).tolist()
        rows = _dicts(good, victims)
        accused = [f"{name}: {code}, and all rows are good" for name, code in self._named_providers(facts)]
        world = self._world(lambda _: None)
        outcomes = []
        for kind in self.kinds:
            if kind.name not in OF_PROVIDERS:
                continue
            place = [i / len(rows) for i in range(len(rows))]
            changed = [OF_PROVIDERS[kind.name](row, at, world) for row, at in zip(rows, place, strict=True)]
            new = self.measure(_table(changed)).with_columns(pl.Series("row_index", victims, dtype=pl.Int32))
            kept = facts.filter(pl.col("provider").ne_missing(pl.lit(VICTIM)))
            named = self._named_providers(pl.concat([kept, new]).sort("row_index"))
            mine = {code for name, code in named if name == VICTIM}
            others = [f"{name}: {code}" for name, code in named if name != VICTIM]
            if others:
                # Who is compared with all others is also compared with the one that stands out.
                self.tell(f"{kind.name}: said of others too: {', '.join(others)}")
            hit = bool(mine & set(kind.reasons))
            missed = () if hit else (f"{VICTIM} ({', '.join(sorted(mine)) or 'nothing'})",)
            outcomes.append(Outcome(kind=kind, injected=1, found=int(bool(mine)), named=int(hit), missed=missed))
            self.tell(kind.name)
        return outcomes, accused

    def _named_providers(self, facts: pl.DataFrame) -> list[tuple[str, str]]:
        """(provider, code) of everything that is said of whole providers."""
        judged = self.judge(facts)
        named = {(a.provider or a.source, a.code) for a in judged.alterations}
        drift = find_drift(judged.facts, self.contract)
        named |= {(d.provider or str(d.source), d.code) for d in drift if d.severity == "warning"}
        table = provider_table(judged.facts, self.contract, drift)
        suite = read_suite(shipped_suite("providers"))
        for result in evaluate(suite, table).results:
            # `openrouter/Birch (thinking): 0.71; …`
            lines = [] if result.success else (result.observed or result.error or "?").split("; ")
            named |= {(line.partition(" (")[0].rpartition("/")[2], result.id) for line in lines}
        return sorted(named)


# --- what facts say of a row ------------------------------------------------------------------------------------

_NOT_PROVED = frozenset({"evidence_given", "prompt_proved"})

_HEALTH_FACTS = {
    "control_characters": "n_control_chars",
    "repetition_loop": "loop_share",
    "refusal": "refusal",
    "secret_in_text": "n_secrets",
    "answer_twice": "duplicate_answer",
}
"""Kind → the fact of text health that shows it: where it was not measured, nobody has looked."""

_UNSETTLED = (str(RebuildStatus.ANSWER_MISSING), str(RebuildStatus.REASONING_MISSING))
_NOTES = ("finish_unknown", "stop_at_max_tokens")


def _fact_codes(facts: pl.DataFrame) -> tuple[list[int], list[str]]:
    """(row, code) of every reason that the facts state."""
    contradicted = pl.col("evidence") == "contradicted"
    marker = pl.col("notes").list.eval(pl.element().str.starts_with("marker_in_")).list.any()
    columns = [
        pl.col("structure"),
        pl.when(contradicted).then(pl.col("evidence_reason")),
        pl.col("tool_fault"),
        pl.when(pl.col("rebuild_status").is_in(_UNSETTLED)).then(pl.col("rebuild_status")),
        pl.when(pl.col("prompt_evidence") == "contradicted").then(pl.lit("prompt")),
        pl.when(marker).then(pl.lit("marker_in_text")),
        *(pl.when(pl.col("notes").list.contains(note)).then(pl.lit(note)) for note in _NOTES),
    ]
    found = (
        facts.with_row_index("_at")
        .select("_at", pl.concat_list(column.cast(pl.String) for column in columns).list.drop_nulls().alias("code"))
        .explode("code")
        .drop_nulls()
    )
    return found["_at"].to_list(), found["code"].to_list()


def _words(facts: pl.DataFrame, at: int, codes: set[str]) -> str:
    row = facts.row(at, named=True)
    return f"{row['provider'] or row['source']}: {', '.join(sorted(codes)) or 'nothing said'}; {row['evidence_reason']}"


def wrong_conventions(judged: Judged) -> list[str]:
    """Groups of at least 30 rows whose way of counting was not learned as it is."""
    names = {"terminal": "the terminal", "end_think": "the end of thinking", "markers": "the tool markers"}
    wrong = []
    for found in judged.conventions:
        counting = next((c for c in COUNTINGS[:ENGINE] if c.name == found.provider), None)
        if counting is None or found.source != "openrouter" or found.learned.rows < 30:
            continue
        left = [names[kind] for kind in counting.leaves_out]
        if counting.beside:
            expected = "counts reasoning beside, and every id in one of both"
        elif left:
            expected = "leaves out " + (left[0] if len(left) == 1 else f"{', '.join(left[:-1])} and {left[-1]}")
        else:
            expected = "counts every id"
        if found.completion != expected and expected not in found.learned.same:
            wrong.append(f"{found.provider}: expected {expected!r}, found {found.completion!r} {found.learned.why}")
        prompt = "counts every id" if counting.prompt_tail else "leaves out the prompt's tail"
        if found.prompt != prompt:
            wrong.append(f"{found.provider}: prompts: expected {prompt!r}, found {found.prompt!r}")
    return wrong


# --- tables -----------------------------------------------------------------------------------------------------


def _dicts(table: pa.Table, rows: Sequence[int]) -> list[Row]:
    found: list[Row] = table.take(pa.array(rows, pa.int64())).to_pylist()
    return found


def _table(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SHARD_SCHEMA)


def _replaced(table: pa.Table, rows: dict[int, Row]) -> pa.Table:
    """The table with some rows in place of its own."""
    if not rows:
        return table
    order = np.arange(table.num_rows)
    order[list(rows)] = table.num_rows + np.arange(len(rows))
    return pa.concat_tables([table, _table(list(rows.values()))]).take(pa.array(order)).combine_chunks()


# --- telling ----------------------------------------------------------------------------------------------------


def summary(report: Report) -> str:
    """A table for a terminal."""
    lines = [f"{'kind':<28}{'trace':<10}{'injected':>9}{'found':>8}{'named':>8}  state"]
    for o in report.outcomes:
        state = "pending" if o.pending else "ok" if o.holds and o.kind.trace != "none" else "MISSED"
        if o.kind.trace == "none":
            state = "leaves no trace"
        lines.append(f"{o.kind.name:<28}{o.kind.trace:<10}{o.injected:>9,}{o.found:>8,}{o.named:>8,}  {state}")
    total = Counter[str]()
    for o in report.outcomes:
        total.update(injected=o.injected, found=o.found)
    lines.append(f"{total['injected']:,} faults in {report.rows:,} rows, seed {report.seed}")
    lines.append(f"false alarms: {len(report.alarms):,} of {report.good:,} good rows; unproved: {report.unproved:,}")
    return "\n".join(lines)


_TRACES = {
    "row": "in the row itself",
    "dataset": "in other rows of the dataset",
    "provider": "in a provider's rows together",
    "none": "nowhere",
}
_PAGE = """# Faults, and whether they are found

`make bench-faults` writes this page. It makes good rows with the real vocabulary of Kimi-K2.5, from {providers}
providers that count in different ways and from an engine; puts faults of each kind into them at the rates of
`tests/faults/kinds.toml`, which stood there before what finds them; and lets the audit's own kernel, judgement and
shipped suites look at them without being told where they are.

Last run: {rows:,} rows, seed {seed}, {injected:,} faulty ones. **False alarms: {alarms:,} of {good:,} good rows.**
Good rows of a provider with fewer than 30 rows, whose way of counting cannot be learned, are not proved and not told
off: {unproved:,}.

*Found* are rows of which anything was said, *rightly* those for which one of the reasons was given. A fault whose
trace is in the row or in the dataset must be found rightly every time, else the bench fails. Faults of providers are
put into all rows of one provider, in a run of its own; they count as one.

| kind | what it is | its trace lies | reasons | injected | found | rightly | false alarms |
|---|---|---|---|---:|---:|---:|---:|
{lines}

## What is not found

- A word in another word's place with as many ids, in text and ids alike, looks like any other answer. Only asking a
  second source, or an engine of your own, the same question shows it.
- Another split of the same text than a tokenizer's is seen where it has another number of ids. Where the number is the
  same nothing shows it: calibration on an engine's own rows says how often that happens.
- Words that are lost and cost no ids, and counts that are wrong by what a provider's way of counting may leave out
  before that way is known, leave no trace either; the bench does not put them in.
- The text of an engine's answer that was cut inside a tool call is not compared with its ids: parsers drop half a call,
  and what is left of it is not known.
- An engine's ids without a terminal are an answer that was cut, whatever its finish reason says.
- Keys without a single digit are taken for words.
- A provider with fewer than 30 rows can only be known to count every id.
"""


def page(report: Report) -> str:
    """The documentation's page of one run."""
    codes = Counter(code for alarm in report.alarms for code in alarm.partition("(")[2].rstrip(")").split(", "))
    lines = [
        f"| `{o.kind.name}` | {o.kind.what} | {_TRACES[o.kind.trace]} | "
        f"{', '.join(f'`{reason}`' for reason in o.kind.reasons) or '–'} | {o.injected:,} | "
        f"{'pending' if o.pending else f'{o.found:,}'} | "
        f"{'pending' if o.pending else '–' if o.kind.trace == 'none' else f'{o.named:,}'} | "
        f"{sum(codes[reason] for reason in o.kind.reasons):,} |"
        for o in report.outcomes
    ]
    return _PAGE.format(
        providers=len(PROVIDERS),
        rows=report.rows,
        seed=report.seed,
        injected=sum(o.injected for o in report.outcomes if o.kind.trace != "provider"),
        alarms=len(report.alarms),
        good=report.good,
        unproved=report.unproved,
        lines="\n".join(lines),
    )
