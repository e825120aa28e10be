"""What can go wrong, as types.

::

    TokenproofError               exit 3 unless a subclass says otherwise
    ├── ConfigError               exit 2: options, tokenproof.toml, a dataset name
    │   ├── UsageError            a command line that no command understands
    │   ├── PromptsError          prompts.jsonl has faulty lines (all of them are in the message)
    │   ├── ContractError         a contract file, or a vocabulary that is not the one it names
    │   └── SuiteError            an expectation suite that cannot be read in full
    ├── StoreError                exit 3: a file that cannot be read or written
    │   ├── ShardError            one shard is missing, cut, altered or of another schema
    │   └── UnreachableError      object storage or a cluster did not answer; worth another try
    ├── GateClosed                exit 1: merge refuses; carries every reason
    ├── PreflightError            exit 2 or 3: what a run depends on will not do; nothing more was sent
    └── RequestError              exit 3: a server did not answer as asked
        ├── TransientError        worth another try
        └── PermanentError        asking again would not help

A failed expectation is a result, never an exception. Messages are lower-case and say what,
where, what was expected and what was found.
"""

from __future__ import annotations

from collections.abc import Sequence

EXIT_PASSED = 0
EXIT_GATE_CLOSED = 1
EXIT_USAGE = 2
EXIT_INCOMPLETE = 3


class TokenproofError(Exception):
    """Base of all errors that a user should read as one message, without a traceback."""

    exit_code: int = EXIT_INCOMPLETE


class ConfigError(TokenproofError):
    """Options, configuration or an input file that the user has to change."""

    exit_code = EXIT_USAGE


class UsageError(ConfigError):
    """A command line that cannot be read: an unknown option, a missing argument, bytes that are no text."""


class PromptsError(ConfigError):
    """prompts.jsonl cannot be used; `faults` holds one sentence per fault, with its line number."""

    def __init__(self, message: str, faults: Sequence[str] = ()):
        super().__init__(message)
        self.faults = tuple(faults)


class ContractError(ConfigError):
    """A contract cannot be read, or its vocabulary is not the one that it names."""


class SuiteError(ConfigError):
    """A suite has something that would not be checked as written."""


class StoreError(TokenproofError):
    """A file or folder cannot be read or written."""


class ShardError(StoreError):
    """A shard is missing, cut short, altered, or has other columns than this version writes."""


class UnreachableError(StoreError):
    """Object storage or a cluster of machines did not answer, or not as it should: worth another try."""


class GateClosed(TokenproofError):
    """Merge refuses. `reasons` holds one sentence per reason, `commands` what to run next, in order."""

    exit_code = EXIT_GATE_CLOSED

    def __init__(self, message: str, reasons: Sequence[str], *, dataset: str = "", commands: Sequence[str] = ()):
        super().__init__(message)
        self.reasons = tuple(reasons)
        self.dataset = dataset
        self.commands = tuple(commands)


class PreflightError(TokenproofError):
    """A preflight says no, or a person did after it. Exit code 2 where prompts or settings are at fault, else 3."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code or EXIT_INCOMPLETE


class RequestError(TokenproofError):
    """A request gave no answer. `reason` is a short code, `status` the HTTP status where there was one."""

    def __init__(self, message: str, *, reason: str, status: int | None = None):
        super().__init__(message)
        self.reason = reason
        self.status = status


class TransientError(RequestError):
    """Worth asking again; `retry_after_s` is the server's own wish, in seconds."""

    def __init__(self, message: str, *, reason: str, status: int | None = None, retry_after_s: float | None = None):
        super().__init__(message, reason=reason, status=status)
        self.retry_after_s = retry_after_s


class PermanentError(RequestError):
    """Asking again would not help."""
