"""What a preflight finds: one line each, and what follows from all of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from toolkit.errors import EXIT_INCOMPLETE, EXIT_PASSED, EXIT_USAGE
from toolkit.records import Json

if TYPE_CHECKING:
    from toolkit.generate.preflight.estimate import Estimate


class Result(StrEnum):
    """How one check came out. `unknown`: nothing that was said or seen tells; it is never taken for either."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Outcome(StrEnum):
    """What follows from all checks."""

    GO = "go"
    WARNINGS = "go with warnings"
    NO_GO = "no-go"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at.

    Attributes:
        about: The dataset, or the endpoint.
        what: What was looked at, in a word or two.
        provider: Of which provider, where it is about one.
        found: In words. A server's words have been made fit to be shown.
        expected: What should have been found; empty where that goes without saying.
        of_input: Whether the user's prompts or settings are at fault, and not somebody's server.
    """

    about: str
    what: str
    result: Result
    found: str
    expected: str = ""
    provider: str | None = None
    of_input: bool = False

    def as_json(self) -> dict[str, Json]:
        """For machines."""
        return {
            "about": self.about, "what": self.what, "provider": self.provider, "result": str(self.result),
            "expected": self.expected or None, "found": self.found,
        }  # fmt: skip

    def with_texts(self, shown: Callable[[str], str]) -> Check:
        """The same, with every text passed through `shown`."""
        provider = None if self.provider is None else shown(self.provider)
        return replace(
            self, about=shown(self.about), found=shown(self.found), expected=shown(self.expected), provider=provider
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a preflight found.

    Attributes:
        checks: In the order in which they were made.
        estimates: What each dataset will take, as far as that is known.
        requests: Requests that were sent and may have been billed.
        cost_usd: What their replies say they cost.
        rows_sealed: Rows that the replies became.
    """

    checks: tuple[Check, ...]
    estimates: tuple[Estimate, ...] = ()
    requests: int = 0
    cost_usd: float = 0.0
    rows_sealed: int = 0

    @property
    def outcome(self) -> Outcome:
        """No-go if anything failed."""
        results = {check.result for check in self.checks}
        if Result.FAIL in results or not results:
            return Outcome.NO_GO
        return Outcome.WARNINGS if Result.WARN in results else Outcome.GO

    @property
    def exit_code(self) -> int:
        """0 go, 2 prompts or settings have to be changed, 3 endpoint, key or credit will not do."""
        if self.outcome is not Outcome.NO_GO:
            return EXIT_PASSED
        return EXIT_USAGE if any(check.of_input for check in self.failed) else EXIT_INCOMPLETE

    @property
    def failed(self) -> tuple[Check, ...]:
        """What stands against sending anything."""
        return tuple(check for check in self.checks if check.result is Result.FAIL)

    def as_json(self) -> dict[str, Json]:
        """For machines: every check."""
        return {
            "outcome": str(self.outcome),
            "exit_code": self.exit_code,
            "checks": [check.as_json() for check in self.checks],
            "estimates": [estimate.as_json() for estimate in self.estimates],
            "requests": self.requests,
            "cost_usd": self.cost_usd,
            "rows_sealed": self.rows_sealed,
        }


def has_failed(checks: Sequence[Check]) -> bool:
    """Whether any of these says no."""
    return any(check.result is Result.FAIL for check in checks)
