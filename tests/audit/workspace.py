"""A small dataset with one bad row, a suite of its own, and the audit of it; and a forger's tools."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from toolkit.audit.conclude import conclude
from toolkit.audit.describe import describe
from toolkit.audit.fact_files import FactFiles
from toolkit.audit.gather import Gathered
from toolkit.audit.recheck import Rechecker
from toolkit.audit.run import audit
from toolkit.audit.scratch import scratch_folder
from toolkit.audit.suite import read_suite
from toolkit.contract import Contract
from toolkit.gate import OpenGate, open_gate
from toolkit.records import Accounting, Verdict
from toolkit.rows import RowBuilder
from toolkit.store.facts import facts_path, find_facts, read_facts, write_facts
from toolkit.store.listing import seal_rows
from toolkit.store.shards import read_live
from toolkit.store.verdicts import read_verdict, write_quarantine, write_verdict
from toolkit.store.workspace import Dataset, Workspace
from toolkit.vocabulary import Vocabulary

from .shard_rows import row

TEXT_STANDS = {
    "type": "expect_column_values_to_be_in_set",
    "kwargs": {"column": "text_equal", "value_set": [True], "mostly": 0.9},
    "meta": {"id": "text_stands", "says": "Ids stand for the text."},
}
MOSTLY_WHOLE = {
    "type": "expect_column_mean_to_be_between",
    "kwargs": {"column": "truncated", "max_value": 0.5},
    "meta": {"id": "mostly_whole", "says": "Most answers are whole."},
}
SHORT = {
    "type": "expect_column_max_to_be_between",
    "kwargs": {"column": "n_ids", "max_value": 1},
    "severity": "warning",
    "meta": {"id": "short", "says": "Answers are short."},
}


def write_suite(path: Path, *expectations: dict[str, Any], share: float = 0.2) -> Path:
    """A suite file, named after itself."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "name": path.stem,
        "expectations": list(expectations or (TEXT_STANDS, MOSTLY_WHOLE, SHORT)),
        "meta": {"tokenproof": {"max_quarantined_share": share}},
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def answers(builder: RowBuilder, count: int, *, bad: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Rows of short answers by Chutes; those in `bad` bear an id that their text does not give."""
    rows = []
    for number in range(count):
        message = {"reasoning": f"So {number}.", "content": f"It is {number}."}
        made = row(builder, message, sample_id=f"s{number}", usage={"completion_tokens": None})
        ids = [int(i) for i in made["output_ids"]]
        rows.append(made | ({"output_ids": [ids[0] + 1, *ids[1:]]} if number in bad else {}))
    return rows


@dataclass(kw_only=True)
class Bench:
    """One dataset in a workspace, and what happens to it."""

    dataset: Dataset
    contract: Contract
    vocabulary: Vocabulary
    suites: list[Path]
    providers: tuple[str, ...] = ()
    accounting: Accounting
    told: list[str] = field(default_factory=list)
    loaded: int = 0

    def load(self) -> Vocabulary:
        self.loaded += 1
        return self.vocabulary

    def audit(self, **how: Any) -> Verdict:
        suites = [(read_suite(path), path) for path in self.suites]
        return audit(
            self.dataset,
            self.contract,
            self.load,
            suites,
            self.accounting,
            allowed_providers=self.providers,
            tell=self.told.append,
            **how,
        )

    def gate(self) -> OpenGate:
        """The gate as `tokenproof merge` opens it."""
        recheck = Rechecker(
            dataset=self.dataset,
            contract=self.contract,
            suites=self.suites,
            allowed_providers=self.providers,
            load_vocabulary=self.load,
            account=lambda: self.accounting,
            tell=self.told.append,
        )
        suites = [(path.stem, path) for path in self.suites]
        return open_gate(self.dataset, self.contract, suites, allowed_providers=self.providers, recheck=recheck)

    def rewrite(self, **changes: Any) -> None:
        """Edit the verdict."""
        write_verdict(self.dataset.verdict, replace(read_verdict(self.dataset.verdict), **changes))

    def alter_facts(self, column: str, value: Any, *, with_receipt: bool) -> None:
        """Give every row of the first shard's kept facts the same value of a column."""
        shard = read_live(self.dataset).shards[0]
        kept = read_facts(self.dataset, shard, self.contract)
        assert kept is not None
        at = kept.table.schema.get_field_index(column)
        values = pa.array([value] * kept.table.num_rows, kept.table.schema.field(column).type)
        table = kept.table.set_column(at, kept.table.schema.field(column), values)
        if with_receipt:
            write_facts(self.dataset, shard, self.contract, table)
        else:
            pq.write_table(table, facts_path(self.dataset, shard, self.contract))

    def forge_verdict(self) -> None:
        """Write the verdict and the quarantine that the kept facts give, whether they are true or not."""
        live = read_live(self.dataset)
        found = [find_facts(self.dataset, shard, self.contract) for shard in live.shards]
        kept = tuple(facts for facts in found if facts is not None)
        files = {shard.sha256: facts.sha256 for shard, facts in zip(live.shards, kept, strict=True)}
        gathered = Gathered(facts=FactFiles(kept), files=files, measured_shards=0, unreadable=())
        suites = [(read_suite(path), path) for path in self.suites]
        root = self.dataset.folder.parents[1]
        with scratch_folder(self.dataset) as scratch:
            conclusion = conclude(
                gathered.facts, self.contract, suites, root=root, scratch=scratch, allowed_providers=self.providers
            )
            verdict = describe(
                self.dataset,
                live,
                self.contract,
                gathered,
                conclusion,
                self.accounting,
                allowed_providers=self.providers,
                prompts_sha256=None,
                quarantine_sha256=write_quarantine(self.dataset.quarantine, conclusion.quarantine),
            )
        write_verdict(self.dataset.verdict, verdict)


def make_bench(root: Path, vocabulary: Vocabulary, *, rows: int = 20, bad: Sequence[int] = (3,)) -> Bench:
    """Rows in two shards and a suite, not audited."""
    builder = RowBuilder(vocabulary.contract, vocabulary)
    dataset = Workspace(root).dataset_named("B3")
    made = answers(builder, rows, bad=bad)
    for part in (made[: rows // 2], made[rows // 2 :]):
        seal_rows(dataset, part, contract=vocabulary.contract.name)
    return Bench(
        dataset=dataset,
        contract=vocabulary.contract,
        vocabulary=vocabulary,
        suites=[write_suite(root / "expectations/small.json")],
        accounting=Accounting(asked=None, rows=rows, answered=None, failed=0, unanswered=None, unsealed=0),
    )
