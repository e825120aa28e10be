"""Contracts: what a complete output of one model looks like in ids.

A contract is a TOML file in `toolkit/contracts/`, or any path that the user names. It is read into
one frozen value; a key that is misspelt, missing or of another type is an error that names it.
Nothing here touches a tokenizer: `toolkit.vocabulary` loads the vocabulary that a contract names and
proves the two against each other.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from toolkit.errors import ContractError
from toolkit.records import Json

SHIPPED = Path(__file__).parent / "contracts"

PARTS = ("{reasoning}", "{content}", "{tools}", "{terminal}")
_CALL_PARTS = ("{id}", "{arguments}")
_LOOKS_SPECIAL = re.compile(r"<\|?[^\s<>]+\|?>")

FinishKind = Literal["stop", "length", "tool_calls"]


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class VocabularySpec(_Strict, frozen=True, kw_only=True):
    """Where the vocabulary comes from, and how it proves itself.

    `source` (`from` in the file) is `splintr:NAME`, `folder:PATH` or `huggingface:NAME`; `pattern` is
    a regular expression, or `splintr:CONSTANT`. `ranks_sha256` is that of the official rank file.
    """

    source: str = msgspec.field(name="from")
    pattern: str | None = None
    base_tokens: int
    ranks_sha256: str | None = None


class ThinkIds(_Strict, frozen=True, kw_only=True):
    """Spellings of the two ids around reasoning."""

    begin: str
    end: str


class ToolForm(_Strict, frozen=True, kw_only=True):
    """How calls stand in the output: section_begin, each call, section_end.

    `call` lists special spellings and the parts `{id}` and `{arguments}`; `id_form` says what an id
    looks like in terms of `{name}` and `{index}`.
    """

    section_begin: str
    call: tuple[str, ...]
    section_end: str
    id_form: str

    def id_matches(self, call_id: str, name: str | None) -> bool:
        """Whether `call_id` has the contract's form and bears `name` (any name when None)."""
        pattern = re.escape(self.id_form)
        pattern = pattern.replace(r"\{name\}", r"(?P<name>[^\s:]+)").replace(r"\{index\}", r"\d+")
        match = re.fullmatch(pattern, call_id)
        return match is not None and (name is None or match.groupdict().get("name", name) == name)


class FinishTable(_Strict, frozen=True, kw_only=True):
    """Lower-case finish reasons, normalised and native, by what they mean."""

    stop: frozenset[str]
    length: frozenset[str]
    tool_calls: frozenset[str]

    def kind_of(self, reason: str | None) -> FinishKind | None:
        """What a reason means; None for an absent or unknown one."""
        lowered = (reason or "").strip().lower()
        if lowered in self.stop:
            return "stop"
        if lowered in self.length:
            return "length"
        if lowered in self.tool_calls:
            return "tool_calls"
        return None


class PromptSpec(_Strict, frozen=True, kw_only=True):
    """How prompts become ids: the name of a renderer of the package `renderers`; None = not rendered."""

    renderer: str | None = None


class Mode(_Strict, frozen=True, kw_only=True):
    """One way of answering.

    `output` lists, in order, special spellings, literal text and the parts `{reasoning}`,
    `{content}`, `{tools}`, `{terminal}`. `prompt_ends_with` is the prompt's tail; `request` holds the
    fields that ask an OpenAI-compatible API for this mode.
    """

    output: tuple[str, ...]
    prompt_ends_with: tuple[str, ...]
    renderer_options: dict[str, Json] = {}
    request: dict[str, Json] = {}

    @property
    def thinks(self) -> bool:
        """Whether a complete answer has reasoning."""
        return "{reasoning}" in self.output


class Contract(_Strict, frozen=True, kw_only=True):
    """One contract file. `sha256` is that of the file's bytes."""

    name: str
    title: str
    models: tuple[str, ...]
    default_mode: str
    vocab_size: int
    think_open_in: Literal["prompt", "completion", "never"]
    markers: tuple[str, ...]
    vocabulary: VocabularySpec
    special: dict[str, int]
    terminals: dict[Literal["stop", "tool_calls"], str]
    think: ThinkIds | None = None
    tools: ToolForm | None = None
    finish: FinishTable
    prompt: PromptSpec = PromptSpec()
    modes: dict[str, Mode]
    sha256: str = ""
    path: str = ""

    def id_of(self, spelling: str) -> int:
        """The id of a special spelling (checked when the contract was read)."""
        return self.special[spelling]

    @property
    def terminal_ids(self) -> frozenset[int]:
        """Ids that end a complete output."""
        return frozenset(self.special[spelling] for spelling in self.terminals.values())

    @property
    def tool_ids(self) -> frozenset[int]:
        """Ids of the tool grammar."""
        if self.tools is None:
            return frozenset()
        spellings = [self.tools.section_begin, *self.tools.call, self.tools.section_end]
        return frozenset(self.special[s] for s in spellings if s not in _CALL_PARTS)

    @property
    def call_begin_id(self) -> int | None:
        """The id that begins each tool call."""
        return None if self.tools is None else self.special[self.tools.call[0]]

    def output_ids(self) -> frozenset[int]:
        """Every special id that some complete output may hold."""
        in_modes = {self.special[s] for m in self.modes.values() for s in m.output if s in self.special}
        return frozenset(in_modes) | self.terminal_ids | self.tool_ids

    def mode(self, name: str) -> Mode:
        """The mode called `name`.

        Raises:
            ContractError: the contract has no such mode.
        """
        try:
            return self.modes[name]
        except KeyError:
            known = ", ".join(sorted(self.modes))
            raise ContractError(f"contract {self.name}: unknown mode {name!r}; expected one of: {known}") from None

    def accepts_model(self, model: str) -> bool:
        """Whether a reply may bear this model name: a pattern of `models`, upper and lower case alike."""
        return any(fnmatch.fnmatchcase(model.lower(), pattern.lower()) for pattern in self.models)

    @property
    def default_model(self) -> str:
        """The first of `models`."""
        return self.models[0]


def shipped_contracts() -> list[str]:
    """Names of the contracts that come with the tool."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def read_contract(name: str, *, folder: Path | None = None) -> Contract:
    """Read a contract by name (from `folder`, then the shipped ones) or by path.

    Raises:
        ContractError: there is no such file, or it is not a contract.
    """
    return parse_contract(*_read_file(name, folder))


def parse_contract(content: bytes, where: str) -> Contract:
    """A contract from the bytes of its file; `where` names the file in errors.

    Raises:
        ContractError: not TOML, a key misspelt, missing or of another type, or parts that do not fit.
    """
    try:
        contract = msgspec.toml.decode(content, type=Contract)
    except msgspec.ValidationError as error:
        raise ContractError(f"{where}: {str(error)[:1].lower()}{str(error)[1:]}") from None
    except msgspec.DecodeError as error:
        raise ContractError(f"{where}: not TOML: {error}") from None
    except UnicodeDecodeError as error:
        raise ContractError(f"{where}: not UTF-8: {error}") from None
    if contract.sha256 or contract.path:
        raise ContractError(f"{where}: sha256 and path are computed; remove them from the file")
    faults = list(_faults(contract))
    if faults:
        raise ContractError(f"{where}: " + f"\n{where}: ".join(faults))
    return msgspec.structs.replace(contract, sha256=hashlib.sha256(content).hexdigest(), path=where)


def _read_file(name: str, folder: Path | None) -> tuple[bytes, str]:
    is_path = name.endswith(".toml") or "/" in name
    candidates = [Path(name)] if is_path else []
    if not is_path:
        if folder is not None:
            candidates.append(folder / f"{name}.toml")
        candidates.append(SHIPPED / f"{name}.toml")
    for path in candidates:
        try:
            return path.read_bytes(), str(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise ContractError(f"{path}: cannot be read: {error.strerror}") from None
    raise ContractError(
        f"contract {name!r} not found; expected one of {', '.join(shipped_contracts())}, or the path of a .toml file"
    )


def _faults(contract: Contract) -> Iterator[str]:
    """What is wrong with a contract that has the right shape."""
    if not contract.models:
        yield "models: expected at least one model name"
    if contract.default_mode not in contract.modes:
        yield f"default_mode: {contract.default_mode!r} is not one of the modes {sorted(contract.modes)}"
    if set(contract.terminals) != {"stop", "tool_calls"}:
        yield "terminals: expected both stop and tool_calls"
    yield from _special_faults(contract.special, contract.vocabulary.base_tokens, contract.vocab_size)
    known = contract.special
    for where, spelling in _named_specials(contract):
        if spelling not in known:
            yield f"{where}: {spelling!r} is not in [special]"
    yield from _finish_faults(contract.finish)
    if contract.tools is not None:
        call = contract.tools.call
        if len(call) != 5 or call[1] != "{id}" or call[3] != "{arguments}":
            yield 'tools.call: expected [begin, "{id}", between, "{arguments}", end]'
    for name, mode in contract.modes.items():
        yield from (f"modes.{name}.{fault}" for fault in _mode_faults(mode, known, contract))


def _special_faults(special: Mapping[str, int], base_tokens: int, vocab_size: int) -> Iterator[str]:
    by_id: dict[int, str] = {}
    for spelling, token_id in special.items():
        if not spelling:
            yield "special: an empty spelling"
        if not base_tokens <= token_id < vocab_size:
            yield f"special: {spelling!r} = {token_id}; expected {base_tokens} to {vocab_size - 1}"
        if token_id in by_id:
            yield f"special: {spelling!r} and {by_id[token_id]!r} both have the id {token_id}"
        by_id[token_id] = spelling


def _finish_faults(finish: FinishTable) -> Iterator[str]:
    tables = {"stop": finish.stop, "length": finish.length, "tool_calls": finish.tool_calls}
    for name, reasons in tables.items():
        for reason in sorted(reasons):
            if reason != reason.strip().lower() or not reason:
                yield f"finish.{name}: expected lower case, found {reason!r}"
    for reason in sorted(set().union(*tables.values())):
        inside = [name for name, reasons in tables.items() if reason in reasons]
        if len(inside) > 1:
            yield f"finish: {reason!r} stands in {' and '.join(inside)}"


def _named_specials(contract: Contract) -> Iterator[tuple[str, str]]:
    for outcome, spelling in contract.terminals.items():
        yield f"terminals.{outcome}", spelling
    for marker in contract.markers:
        yield "markers", marker
    if contract.think is not None:
        yield "think.begin", contract.think.begin
        yield "think.end", contract.think.end
    if contract.tools is not None:
        yield "tools.section_begin", contract.tools.section_begin
        yield "tools.section_end", contract.tools.section_end
        for spelling in contract.tools.call:
            if spelling not in _CALL_PARTS:
                yield "tools.call", spelling


def _mode_faults(mode: Mode, special: Mapping[str, int], contract: Contract) -> Iterator[str]:
    if mode.output.count("{content}") != 1 or mode.output.count("{terminal}") != 1:
        yield "output: expected {content} and {terminal} once each"
    elif mode.output[-1] != "{terminal}":
        yield "output: expected {terminal} last"
    for part in ("{reasoning}", "{tools}"):
        if mode.output.count(part) > 1:
            yield f"output: expected {part} at most once"
    if any(piece in PARTS for piece in mode.prompt_ends_with):
        yield f"prompt_ends_with: expected spellings and text, found {list(mode.prompt_ends_with)}"
    if "{tools}" in mode.output and contract.tools is None:
        yield "output: {tools} needs a [tools] table"
    for piece in (*mode.output, *mode.prompt_ends_with):
        if piece in PARTS or piece in special:
            continue
        if _LOOKS_SPECIAL.fullmatch(piece) or (piece.startswith("{") and piece.endswith("}")):
            yield f"output: {piece!r} is neither a part {PARTS} nor in [special]"
