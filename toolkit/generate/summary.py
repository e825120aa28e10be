"""What came of a run, for people and for machines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from toolkit.errors import EXIT_INCOMPLETE, EXIT_PASSED
from toolkit.generate.spent import Spent, what_to_raise
from toolkit.records import Json
from toolkit.wire.reply import short


@dataclass(slots=True, kw_only=True)
class RunSummary:
    """What became of the asks: `asked` is the sum of the six fields from `answered_before` to `left`.

    Probes are counted apart.

    Attributes:
        prompts: How many prompts the asks are about.
        samples: Answers to each prompt that were asked for.
        answered_before: Asks that had a row, or an entry in the journal, when the run began.
        failed_before: Asks that an earlier run found to be without hope.
        failed_final: Asks that are not repeated.
        failed_transient: Asks that the next run repeats.
        left: Asks that were not sent, or whose reply nobody waited for.
        lost: Of those left, asks that were in flight when the run was stopped at once.
        set_aside: Rows that answered another request than prompts and settings ask now; their asks are asked anew.
        probes_asked, probes_answered, probes_failed: Second answers of another source.
        requests: Requests sent, further tries included.
        rows_sealed: New rows, those of earlier journals included.
        tokens: Sum of completion_tokens of the new answers.
        tokens_before: The same of the rows that were there.
        cost_usd: What replies of this run say they cost, those that are no answers included.
        providers: New answers by provider.
        failures: Failed asks of this run by reason.
        stopped: Why nothing more was sent; None where everything was.
        spent: What ran out, where that is why.
        interrupted: Whether a person stopped it.
    """

    dataset: str = ""
    asked: int = 0
    prompts: int = 0
    samples: int = 1
    answered_before: int = 0
    failed_before: int = 0
    answered: int = 0
    failed_final: int = 0
    failed_transient: int = 0
    left: int = 0
    lost: int = 0
    set_aside: int = 0
    probes_asked: int = 0
    probes_answered: int = 0
    probes_failed: int = 0
    requests: int = 0
    rows_sealed: int = 0
    tokens: int = 0
    tokens_before: int = 0
    cost_usd: float = 0.0
    providers: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    stopped: str | None = None
    spent: Spent = ""
    interrupted: bool = False

    @property
    def complete(self) -> bool:
        """Whether nothing is left for another run."""
        probes_open = self.probes_asked - self.probes_answered
        return self.left == 0 and self.failed_transient == 0 and probes_open == 0

    @property
    def exit_code(self) -> int:
        """0 where nothing is left, else 3."""
        return EXIT_PASSED if self.complete else EXIT_INCOMPLETE

    def as_json(self) -> dict[str, Json]:
        """For machines."""
        values = ((name, getattr(self, name)) for name in self.__slots__)
        shown = {name: dict(value) if isinstance(value, Counter) else value for name, value in values}
        return shown | {"complete": self.complete}

    def lines(self) -> list[str]:
        """For people."""
        parts = [
            (self.answered, "answered"),
            (self.answered_before, "answered before"),
            (self.failed_final, "failed for good"),
            (self.failed_before, "failed for good before"),
            (self.failed_transient, "failed, asked again next time"),
            (self.left, "left"),
        ]
        told = ", ".join(f"{count:,} {what}" for count, what in parts if count) or "0 answered"
        asks = "" if self.asked == self.prompts else f", {_count(self.asked, 'answer')} asked for"
        lines = [f"{self.dataset}: {_count(self.prompts, 'prompt')}{asks}: {told}"]
        if self.set_aside:
            lines.append(f"  {_count(self.set_aside, 'row')} discarded: asked with other prompts or settings than now")
        if self.lost:
            lines.append(f"  {self.lost:,} in flight when the run was stopped, which may have been billed")
        if self.probes_asked:
            lines.append(f"  {self.probes_answered:,} of {_count(self.probes_asked, 'probe')} answered")
        if self.requests:
            tokens = _count(self.tokens, "completion token")
            lines.append(f"  {_count(self.requests, 'request')}, {tokens}, ${self.cost_usd:.4f}")
        lines.append(f"  {_count(self.rows_sealed, 'row')} sealed")
        for title, counted in (("providers", self.providers), ("failures", self.failures)):
            if counted:
                lines.append(f"  {title}: " + ", ".join(f"{count:,} {what}" for what, count in counted.most_common()))
        if self.stopped is not None:
            lines.append(f"  stopped: {self.stopped}")
        if not self.complete:
            more = what_to_raise(self.spent) or "run the same command again"
            lines.append(f"  {more} to ask for what is missing")
        return lines


def _count(value: int, noun: str) -> str:
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"


def shown(text: str, limit: int) -> str:
    """A server's words, fit for a terminal: one line, no escapes, cut short."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in short(text, limit))
