"""Import: answers that somebody already has become rows, all of a file's or none.

Three forms, told apart line by line: OpenAI batch output (`custom_id`, `response`), in-house raw responses
(`sample_id`, `output_ids` …), and recorded traffic (`request`, `status`, `body`).
Counts add up: lines = rows + failures + already there.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from toolkit.contract import Contract
from toolkit.errors import ConfigError
from toolkit.records import (
    SAMPLING_KEYS,
    SOURCES_WITH_IDS,
    Entry,
    Failure,
    IdsSource,
    Json,
    Origin,
    Prompt,
    Source,
    canonical_json,
    imported_row_key,
    row_key_of,
    storable_text,
)
from toolkit.rows import RowBuilder, failure_about
from toolkit.store.files import numbered_lines, sole_writer
from toolkit.store.journal import write_failures
from toolkit.store.prompts import read_prompts
from toolkit.store.shards import read_live, read_shard, seal_rows
from toolkit.store.workspace import Dataset
from toolkit.vocabulary import Vocabulary
from toolkit.wire.json import NotJsonError, dump_json, load_json
from toolkit.wire.raw import bears_api_marks

Identity = tuple[str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """What the user says about lines that do not say it themselves.

    Attributes:
        mode: Mode of lines without one; the contract's default when None.
        model: Model of lines without one; the contract's first when None.
        source: Source of lines that do not tell theirs.
        local_ids_are_engine: Ids of sglang lines without any mark of a paid API came from the engine.
    """

    mode: str | None = None
    model: str | None = None
    source: str | None = None
    local_ids_are_engine: bool = False


@dataclass(slots=True)
class ImportCounts:
    """What became of the lines."""

    lines: int = 0
    rows: int = 0
    already_there: int = 0
    failures: int = 0
    by_reason: Counter[str] = field(default_factory=Counter)
    assumed: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Json]:
        """For machines."""
        values = ((name, getattr(self, name)) for name in self.__slots__)
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in values}


def import_files(
    dataset: Dataset,
    files: list[Path],
    contract: Contract,
    vocabulary: Vocabulary,
    options: ImportOptions,
    advance: Callable[[int], None] = lambda _: None,
) -> ImportCounts:
    """Import whole files into a dataset; a killed import leaves the dataset as it was.

    Raises:
        ConfigError: a file cannot be read, or the dataset holds rows of another contract.
        StoreError: the dataset cannot be read or written.
    """
    contract.mode(options.mode or contract.default_mode)
    for file in files:
        if not file.is_file():
            raise ConfigError(f"{file}: expected a file of JSON lines, found {'a folder' if file.is_dir() else 'none'}")
    with sole_writer(dataset.lock):
        live = read_live(dataset)
        if live.contract is not None and live.contract != contract.name:
            raise ConfigError(
                f"dataset {dataset.name}: expected contract {live.contract}, found {contract.name}; "
                "rows of two contracts cannot stand in one dataset"
            )
        prompts = {}
        if dataset.prompts.exists():
            prompts = {prompt.id: prompt for prompt in read_prompts(dataset.prompts, modes=contract.modes)}
        run = _Import(
            dataset=dataset,
            builder=RowBuilder(contract, vocabulary),
            options=options,
            prompts=prompts,
            known=_known_bodies(dataset),
            advance=advance,
        )
        seal_rows(dataset, run.rows_of(files), contract=contract.name)
        for file, failures in run.failures.items():
            digest = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:12]
            path = dataset.failures / f"import-{digest}.jsonl"
            if failures or path.exists():
                write_failures(path, failures)
    return run.counts


def _known_bodies(dataset: Dataset) -> dict[Identity, bytes]:
    """Identity → digest of the reply's body, of all rows that are there."""
    known = {}
    for shard in read_live(dataset).shards:
        table = read_shard(dataset, shard, ["sample_id", "turn", "sample_index", "payload"])
        for row in table.to_pylist():
            body = load_json(row["payload"])["body"]
            known[(row["sample_id"], row["turn"], row["sample_index"])] = _digest(body)
    return known


def _digest(body: str) -> bytes:
    return hashlib.blake2b(body.encode(), digest_size=16).digest()


class _LineError(Exception):
    """A line that cannot become an entry."""

    def __init__(self, reason: str, detail: str, sample_id: str | None = None):
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.sample_id = sample_id


@dataclass(slots=True, kw_only=True)
class _Import:
    dataset: Dataset
    builder: RowBuilder
    options: ImportOptions
    prompts: Mapping[str, Prompt]
    known: dict[Identity, bytes]
    advance: Callable[[int], None]
    counts: ImportCounts = field(default_factory=ImportCounts)
    failures: dict[Path, list[Failure]] = field(default_factory=dict)

    def rows_of(self, files: list[Path]) -> Iterator[dict[str, Any]]:
        """Rows of all lines; what gives none is counted and recorded."""
        for file in files:
            self.failures.setdefault(file, [])
            for number, line in _lines_of(file):
                self.counts.lines += 1
                row = self._row_of(file, number, line)
                self.advance(1)
                if row is not None:
                    self.counts.rows += 1
                    self.counts.statuses[row["rebuild_status"]] += 1
                    yield row

    def _row_of(self, file: Path, number: int, line: bytes) -> dict[str, Any] | None:
        where = f"{file.name}: line {number}"
        try:
            entry = self._entry_of(line)
        except _LineError as error:
            body = line.decode("utf-8", "replace")
            self._fail(
                file,
                Failure(
                    reason=error.reason,
                    detail=storable_text(error.detail),
                    final=True,
                    where=where,
                    sample_id=error.sample_id,
                    body=body,
                ),
            )
            return None
        digest = _digest(entry.body)
        earlier = self.known.get(entry.identity)
        if earlier == digest:
            self.counts.already_there += 1
            return None
        if earlier is not None:
            detail = f"expected one answer to {entry.identity}, found another one with other content"
            self._fail(file, failure_about(entry, "id_conflict", detail, where=where))
            return None
        reply = self.builder.read(entry, where=where)
        if isinstance(reply, Failure):
            self._fail(file, reply)
            return None
        if reply.model is None and "model" not in entry.assumed:
            entry = replace(entry, assumed=(*entry.assumed, "model"))
        self.known[entry.identity] = digest
        self.counts.assumed.update(entry.assumed)
        return self.builder.build(entry, reply)

    def _fail(self, file: Path, failure: Failure) -> None:
        self.failures[file].append(failure)
        self.counts.failures += 1
        self.counts.by_reason[failure.reason] += 1

    def _entry_of(self, line: bytes) -> Entry:
        try:
            value = load_json(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise _LineError("not_utf8", f"expected UTF-8, found another byte at {error.start}") from None
        except NotJsonError as error:
            raise _LineError("not_json", f"expected a JSON object: {error}") from None
        if not isinstance(value, dict):
            raise _LineError("line_invalid", f"expected a JSON object, found {type(value).__name__}")
        try:
            canonical_json(value)
        except ValueError:
            raise _LineError("line_invalid", "expected JSON nested at most 250 levels deep") from None
        if "custom_id" in value:
            return self._batch_entry(value)
        if "sample_id" in value:
            return self._raw_entry(value, line)
        if "body" in value and "request" in value:
            return self._recorded_entry(value)
        raise _LineError(
            "line_invalid",
            "expected a batch line (custom_id, response), a raw response (sample_id, output_ids) or recorded "
            f"traffic (request, status, body), found the keys {sorted(map(str, value))[:12]}",
        )

    def _batch_entry(self, value: dict[str, Json]) -> Entry:
        sample_id = _sample_id(value, "custom_id")
        response = value.get("response")
        if not isinstance(response, dict):
            raise _LineError("batch_error", f"expected a response, found error {value.get('error')!r:.200}", sample_id)
        status = response.get("status_code")
        if type(status) is not int:
            raise _LineError("line_invalid", f"expected response.status_code, found {status!r:.80}", sample_id)
        body = response.get("body")
        text = _as_utf8(body, sample_id) if isinstance(body, str) else dump_json(body)
        provider = body.get("provider") if isinstance(body, dict) else None
        source = Source.OPENROUTER if provider is not None else self.options.source or "openai"
        return self._finish_entry(value, sample_id, form="openai", body=text, status=status, source=source)

    def _raw_entry(self, value: dict[str, Json], line: bytes) -> Entry:
        sample_id = _sample_id(value, "sample_id")
        source = Source.OPENROUTER if value.get("provider") is not None else self.options.source or Source.SGLANG
        local = source in SOURCES_WITH_IDS and not bears_api_marks(value)
        engine = self.options.local_ids_are_engine and local
        return self._finish_entry(
            value,
            sample_id,
            form="raw",
            body=line.decode("utf-8"),
            source=source,
            ids_are=IdsSource.ENGINE if engine else IdsSource.GIVEN,
        )

    def _recorded_entry(self, value: dict[str, Json]) -> Entry:
        body, status, request = value["body"], value.get("status", 200), value["request"]
        if not isinstance(body, str) or type(status) is not int or not isinstance(request, dict):
            raise _LineError("line_invalid", "expected body as text, status as number and request as object")
        _as_utf8(body, None)
        path, index = value.get("path"), value.get("index")
        given = value.get("id")
        name = f"{path}#{index}" if isinstance(path, str) else f"sha256-{_digest(dump_json(value)).hex()}"
        sample_id = given if isinstance(given, str) and given else name
        source = self.options.source or source_of_url(value.get("url"))
        return self._finish_entry(
            value, storable_text(sample_id), form="openai", body=body, status=status, source=source, request=request
        )

    def _finish_entry(
        self,
        value: dict[str, Json],
        sample_id: str,
        *,
        form: str,
        body: str,
        source: str,
        status: int = 200,
        request: dict[str, Json] | None = None,
        ids_are: IdsSource = IdsSource.GIVEN,
    ) -> Entry:
        """What all forms share: the prompt, the mode, the model, the identity."""
        contract = self.builder.contract
        turn, sample_index = (_index(value, key, sample_id) for key in ("turn", "sample_index"))
        joined = self.prompts.get(sample_id) if request is None else None
        asked = request or {}
        messages = asked.get("messages") if request else (joined.messages if joined else None)
        tools = asked.get("tools") if request else (joined.tools if joined else None)
        said = value.get("mode") if form == "raw" else None
        if said is None:
            said = mode_of_request(asked, contract) or (joined.mode if joined else None)
        mode = self._mode_of(said, sample_id)
        model = asked.get("model")
        sampling = {key: asked[key] for key in SAMPLING_KEYS if asked.get(key) is not None}
        cap = asked.get("max_completion_tokens") or asked.get("max_tokens")
        cap = cap if type(cap) is int and cap > 0 else None
        messages = messages if _are_messages(messages) else None
        if messages is not None and request is not None:
            row_key = row_key_of(
                contract=contract.name, messages=messages, tools=tools, mode=mode, sampling=sampling,
                max_tokens=cap, sample_index=sample_index, turn=turn,
            )  # fmt: skip
        else:
            row_key = imported_row_key(
                dataset=self.dataset.name, sample_id=sample_id, sample_index=sample_index, turn=turn
            )
        stop = asked.get("stop")
        return Entry(
            row_key=row_key,
            sample_id=sample_id,
            turn=turn,
            sample_index=sample_index,
            source=str(source),
            origin=Origin.IMPORT,
            contract=contract.name,
            mode=mode,
            model=model if isinstance(model, str) else self.options.model or contract.default_model,
            form=form,
            body=body,
            status=status,
            messages=messages,
            tools=tools if isinstance(tools, list) and tools else None,
            request=request,
            sampling=sampling,
            max_tokens=cap,
            stop=(stop,) if isinstance(stop, str) else tuple(stop) if isinstance(stop, list) else (),
            ids_are=ids_are,
            assumed=("mode",) if said is None else (),
            streamed=bool(asked["stream"]) if isinstance(asked.get("stream"), bool) else None,
        )

    def _mode_of(self, said: Json, sample_id: str) -> str:
        """The mode that a line states, else the one that the user or the contract assumes."""
        contract = self.builder.contract
        mode = (self.options.mode or contract.default_mode) if said is None else said
        if not isinstance(mode, str) or mode not in contract.modes:
            known = ", ".join(sorted(contract.modes))
            raise _LineError("mode_unknown", f"expected mode as one of {known}, found {mode!r:.80}", sample_id)
        return mode


def _as_utf8(body: str, sample_id: str | None) -> str:
    """A body as it came; half of a surrogate pair never came over a wire."""
    if storable_text(body) != body:
        raise _LineError("not_utf8", "expected body as UTF-8, found a lone surrogate", sample_id)
    return body


def source_of_url(url: Json) -> str:
    """`openrouter` for OpenRouter; for other APIs the name in their host (api.example.com → example)."""
    try:
        host = urlsplit(storable_text(url)).hostname if isinstance(url, str) else None
    except ValueError:
        host = None
    if not host:
        return "openai"
    labels = host.split(".")
    name = labels[-2] if len(labels) > 1 and not labels[-1].isdigit() else host
    return str(Source.OPENROUTER) if name == "openrouter" else name


def mode_of_request(request: Mapping[str, Json], contract: Contract) -> str | None:
    """The mode that a request asks for in so many words; None where it leaves it to the server."""
    template = request.get("chat_template_kwargs")
    for name, mode in contract.modes.items():
        if mode.request and all(_includes(request.get(key), value) for key, value in mode.request.items()):
            return name
        if mode.renderer_options and isinstance(template, Mapping) and _includes(template, mode.renderer_options):
            return name
    return None


def _includes(value: Json, wanted: Json) -> bool:
    """Whether `value` says everything that `wanted` says."""
    if isinstance(wanted, Mapping):
        return isinstance(value, Mapping) and all(_includes(value.get(k), v) for k, v in wanted.items())
    return bool(value == wanted)


def _lines_of(file: Path) -> Iterator[tuple[int, bytes]]:
    try:
        yield from numbered_lines(file)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None


def _sample_id(value: Mapping[str, Json], key: str) -> str:
    sample_id = value[key]
    if isinstance(sample_id, int) and not isinstance(sample_id, bool):
        return str(sample_id)
    if isinstance(sample_id, str) and 0 < len(sample_id) <= 1024:
        return storable_text(sample_id)
    raise _LineError("line_invalid", f"expected {key} as text of 1 to 1,024 characters, found {sample_id!r:.80}")


def _index(value: Mapping[str, Json], key: str, sample_id: str) -> int:
    index = value.get(key, 0)
    if type(index) is int and 0 <= index < 2**31:
        return index
    raise _LineError("line_invalid", f"expected {key} as a whole number from 0, found {index!r:.80}", sample_id)


def _are_messages(messages: Json) -> bool:
    return isinstance(messages, list) and bool(messages) and all(isinstance(m, dict) for m in messages)
