"""Contracts: what a complete output of one model looks like in ids.

A contract is a TOML file in `toolkit/contracts/`, in the workspace's own `contracts/`, or at any path that the user
names. It is read into one frozen value; a key that is misspelt, missing or of another type is an error that names it.
Nothing here touches a tokenizer: `toolkit.vocabulary` loads the vocabulary that a contract names and
proves the two against each other.
"""

from __future__ import annotations

import difflib
import fnmatch
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from toolkit.contract_faults import CALL_PARTS, NAME, PARTS, faults_of
from toolkit.errors import ContractError, StoreError
from toolkit.records import Json
from toolkit.store.files import files_in, read_regular, stands
from toolkit.toml import TomlError, read_toml

SHIPPED = Path(__file__).parent / "contracts"

__all__ = ["PARTS", "SHIPPED", "Contract", "parse_contract", "read_contract", "shipped_contracts"]

FinishKind = Literal["stop", "length", "tool_calls"]


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class VocabularySpec(_Strict, frozen=True, kw_only=True):
    """Where the vocabulary comes from, and how it proves itself.

    `source` (`from` in the file) is `splintr:NAME`, `folder:PATH` or `huggingface:NAME`; `pattern` is
    a regular expression, or `splintr:CONSTANT`. `ranks_sha256` is that of the official rank file. `holes` are ids
    below `base_tokens` that are no base tokens: special ids may stand there (DeepSeek's first three are such).
    `normalizer` is what the model's tokenizer does to a prompt's text before it splits it.
    """

    source: str = msgspec.field(name="from")
    pattern: str | None = None
    base_tokens: int
    holes: frozenset[int] = frozenset()
    normalizer: Literal["NFC"] | None = None
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


class RawTools(_Strict, frozen=True, kw_only=True):
    """Calls that are never rebuilt from text, because servers do not return them as the model wrote them.

    An engine's own ids are still held against this form: `begins` are ids that may open the part `{tools}`,
    `follows` says which ids may come after which, with any text between, and `ends` are those after which the part
    may be over. Without `ends` the ids may stand anywhere. `call` is the id that begins each call.
    """

    call: str
    begins: tuple[str, ...]
    follows: dict[str, tuple[str, ...]] = {}
    ends: tuple[str, ...] = ()

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every special spelling of the form, each once."""
        after = [spelling for following in self.follows.values() for spelling in following]
        return tuple(dict.fromkeys([self.call, *self.begins, *self.follows, *after, *self.ends]))


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
    fields that ask an OpenAI-compatible API for this mode, `renderer_options` the options of the chat template that
    ask an engine. Where the renderer knows the mode's prompt only as that of another mode and a tail,
    `rendered_as` names that mode and `prompt_adds` is the tail.
    """

    output: tuple[str, ...]
    prompt_ends_with: tuple[str, ...]
    prompt_adds: tuple[str, ...] = ()
    rendered_as: str | None = None
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
    raw_tools: RawTools | None = None
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
        spellings: tuple[str, ...] = () if self.raw_tools is None else self.raw_tools.spellings
        if self.tools is not None:
            spellings += (self.tools.section_begin, *self.tools.call, self.tools.section_end)
        return frozenset(self.special[s] for s in spellings if s not in CALL_PARTS)

    @property
    def call_begin_id(self) -> int | None:
        """The id that begins each tool call."""
        if self.tools is not None:
            return self.special[self.tools.call[0]]
        return None if self.raw_tools is None else self.special[self.raw_tools.call]

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


def own_contracts(folder: Path) -> list[str]:
    """Names of the contracts in a workspace's own folder, whether they can be read or not.

    Raises:
        StoreError: the folder cannot be read.
    """
    return [path.stem for path in files_in(folder, ".toml") if not path.name.startswith(".")]


def read_contract(name: str | Path, *, folder: Path | None = None) -> Contract:
    """Read a contract by name (from `folder`, then the shipped ones) or by path: text with / or .toml in it is one.

    Raises:
        ContractError: there is no such file, it is not a contract, or not one of the name that it is asked for by.
    """
    content, where = _read_file(name, folder)
    contract = parse_contract(content, where)
    if not is_contract_path(name) and contract.name != name:
        raise ContractError(f"{where}: name: expected {name!r}, as the file is called, found {contract.name!r}")
    return contract


def parse_contract(content: bytes, where: str) -> Contract:
    """A contract from the bytes of its file; `where` names the file in errors.

    Raises:
        ContractError: not TOML, a key misspelt, missing or of another type, or parts that do not fit; all faults
            of a kind are told at once, a line each.
    """
    try:
        contract = read_toml(content, Contract)
    except TomlError as error:
        raise _faulty(where, error.faults) from None
    if contract.sha256 or contract.path:
        raise ContractError(f"{where}: sha256 and path are computed; remove them from the file")
    if faults := list(faults_of(contract)):
        raise _faulty(where, faults)
    return msgspec.structs.replace(contract, sha256=hashlib.sha256(content).hexdigest(), path=where)


def _faulty(where: str, faults: Sequence[str]) -> ContractError:
    return ContractError("\n".join(f"{where}: {fault}" for fault in faults))


def is_contract_path(name: str | Path) -> bool:
    """Whether a contract is named by its file."""
    return isinstance(name, Path) or name.endswith(".toml") or "/" in name


def _read_file(name: str | Path, folder: Path | None) -> tuple[bytes, str]:
    for path in _candidates(name, folder):
        try:
            if stands(path):
                return read_regular(path), str(path)
        except OSError as error:
            raise ContractError(f"{path}: cannot be read: {error.strerror or error}") from None
        except StoreError as error:
            raise ContractError(str(error)) from None
    raise _not_found(str(name), folder)


def _candidates(name: str | Path, folder: Path | None) -> list[Path]:
    """Where a contract may lie; a link there that leads nowhere is a fault, not a reason to look further."""
    if is_contract_path(name):
        return [Path(name)]
    if not NAME.fullmatch(str(name)):
        return []
    return [parent / f"{name}.toml" for parent in (folder, SHIPPED) if parent is not None]


def _not_found(name: str, folder: Path | None) -> ContractError:
    known = dict.fromkeys([*(own_contracts(folder) if folder is not None else ()), *shipped_contracts()])
    meant = difflib.get_close_matches(name[:100], known, n=1)
    hint = f"; did you mean {meant[0]}?" if meant else ""
    return ContractError(
        f"contract {name[:80]!r} not found; expected one of {', '.join(known)}, or the path of a .toml file{hint}"
    )
