"""One line of an imported file: what it says about itself, as an entry. Pure.

Four forms, told apart line by line: rows prepared for a trainer (`input_ids` and a mask), OpenAI batch output
(`custom_id`, `response`), in-house raw responses (`sample_id`, `output_ids` …), and recorded traffic (`request`,
`status`, `body`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from msgspec import structs

from toolkit.config import is_name
from toolkit.contract import Contract
from toolkit.errors import ConfigError
from toolkit.records import (
    SAMPLING_KEYS,
    SOURCES_WITH_IDS,
    Entry,
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
from toolkit.rows import rewrite_tool_ids
from toolkit.store.live_rows import digest_of
from toolkit.wire.json import NotJsonError, dump_json, load_json
from toolkit.wire.prepared import NotOneSplitError, is_prepared, split
from toolkit.wire.raw import bears_api_marks
from toolkit.wire.redact import hide_in_text, without_secrets

_PREPARED_IDS = ("sample_id", "id", "conversation_id", "data_id")
"""Fields that name a prepared row; one without any is named by its content."""

UNNAMED_API = "openai"
"""Source of a chat completion where nothing says whose it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """What the user says about lines that do not say it themselves.

    Attributes:
        mode: Mode of lines without one; the contract's default when None.
        model: Model of lines without one; the contract's first when None.
        source: Source of lines that do not tell theirs.
        local_ids_are_engine: Ids of sglang lines without any mark of a paid API came from the engine.
        replace: Rows that are there from the same lines, but were made with other options, are made anew; imported
            rows give way to another answer of the same identity.
    """

    mode: str | None = None
    model: str | None = None
    source: str | None = None
    local_ids_are_engine: bool = False
    replace: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One line as an entry; its source is decided (`LineReader.source_of`) when it is known whom the reply names.

    Attributes:
        entry: Its source is still empty.
        url: Where the request went, where the line says it.
        names_provider: The line itself names one.
    """

    entry: Entry
    url: Json = None
    names_provider: bool = False


class LineError(Exception):
    """A line that cannot become an entry; `body` is the line, without headers and keys."""

    def __init__(self, reason: str, detail: str, sample_id: str | None = None):
        super().__init__(detail)
        self.reason = reason
        self.detail = storable_text(detail)
        self.sample_id = sample_id
        self.body = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReader:
    """Reads the lines of one import.

    Attributes:
        dataset: Name of the dataset.
        prompts: Prompts of the dataset, by id.
        tails: Mode → the ids that its prompts end with: they tell the mode of a row that is nothing but ids.
    """

    contract: Contract
    dataset: str
    options: ImportOptions
    prompts: Mapping[str, Prompt]
    tails: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def read(self, line: bytes) -> Line:
        """A line as an entry.

        Raises:
            LineError: it is in none of the forms, or has a field of the wrong type.
        """
        text = line.decode("utf-8", "replace")
        value: Json = None
        try:
            value = _object_of(line)
            return self._line_of(value, text)
        except LineError as error:
            clean = without_secrets(value)
            # What is kept here is no row: the user has the line itself, and a key in it must not get about.
            error.body = hide_in_text(text if clean is value else dump_json(clean))
            raise

    def source_of(self, line: Line, *, provider: str | None) -> tuple[str, str]:
        """(source, what decided it): `provider`, `url`, `option` or `default`.

        Args:
            line: The line.
            provider: Whom the reply names.
        """
        shown = source_of_url(line.url)
        if shown in (None, Source.OPENROUTER) and (line.names_provider or provider is not None):
            return str(Source.OPENROUTER), "provider"
        if shown == Source.OPENROUTER:
            return shown, "url"
        if self.options.source is not None:
            return self.options.source, "option"
        if shown is not None:
            return shown, "url"
        return (str(Source.SGLANG) if line.entry.form == "raw" else UNNAMED_API), "default"

    def _line_of(self, value: dict[str, Json], text: str) -> Line:
        if is_prepared(value):
            return self._prepared_line(value, text)
        if "custom_id" in value:
            return self._batch_line(value)
        if "sample_id" in value:
            return self._raw_line(value, text)
        if "body" in value and "request" in value:
            return self._recorded_line(value)
        raise LineError(
            "line_invalid",
            "expected a batch line (custom_id, response), a raw response (sample_id, output_ids), recorded traffic "
            "(request, status, body) or a prepared row (input_ids and loss_mask or labels), found the keys "
            f"{sorted(map(str, value))[:12]}",
        )

    def _batch_line(self, value: dict[str, Json]) -> Line:
        sample_id = _sample_id(value, "custom_id")
        response = value.get("response")
        if not isinstance(response, dict):
            found = hide_in_text(f"{value.get('error')!r:.400}")
            raise LineError("batch_error", f"expected a response, found error {found:.200}", sample_id)
        status = response.get("status_code")
        if type(status) is not int:
            raise LineError("line_invalid", f"expected response.status_code, found {status!r:.80}", sample_id)
        body = response.get("body")
        text = _as_utf8(body, sample_id) if isinstance(body, str) else dump_json(body)
        return Line(self._entry_of(value, sample_id, form="openai", body=text, status=status))

    def _raw_line(self, value: dict[str, Json], text: str) -> Line:
        sample_id = _sample_id(value, "sample_id")
        clean = without_secrets(value)
        entry = self._entry_of(value, sample_id, form="raw", body=text if clean is value else dump_json(clean))
        line = Line(entry, names_provider=value.get("provider") is not None)
        source, _ = self.source_of(line, provider=None)
        if self.options.local_ids_are_engine and source in SOURCES_WITH_IDS and not bears_api_marks(value):
            return replace(line, entry=structs.replace(entry, ids_are=IdsSource.ENGINE))
        return line

    def _prepared_line(self, value: dict[str, Json], text: str) -> Line:
        """Its prompt is the ids that it brings: rendering one anew would put other ids in their place."""
        key = next((key for key in _PREPARED_IDS if value.get(key) is not None), None)
        sample_id = f"sha256-{digest_of(dump_json(value)).hex()[:32]}" if key is None else _sample_id(value, key)
        said = value.get("mode")
        if said is None:
            said = self._mode_of_tail(value, sample_id)
        clean = without_secrets(value)
        turn, sample_index = (_index(value, name, sample_id) for name in ("turn", "sample_index"))
        entry = Entry(
            row_key=imported_row_key(dataset=self.dataset, sample_id=sample_id, sample_index=sample_index, turn=turn),
            sample_id=sample_id,
            turn=turn,
            sample_index=sample_index,
            source="",
            origin=Origin.IMPORT,
            contract=self.contract.name,
            mode=self._mode_of(said, sample_id),
            model=self.options.model or self.contract.default_model,
            form="prepared",
            body=text if clean is value else dump_json(clean),
            assumed=("mode",) if said is None else (),
        )
        return Line(entry, names_provider=value.get("provider") is not None)

    def _mode_of_tail(self, value: Mapping[str, Json], sample_id: str) -> str | None:
        """The mode whose prompts end as this one does; of several the one that says most. None: not told."""
        try:
            prompt, _ = split(value)
        except NotOneSplitError as error:
            raise LineError(error.reason, error.detail, sample_id) from None
        matching = {
            mode: len(tail) for mode, tail in self.tails.items() if prompt[len(prompt) - len(tail) :] == list(tail)
        }
        longest = max(matching.values(), default=0)
        told = [mode for mode, length in matching.items() if length == longest]
        return told[0] if len(told) == 1 else None

    def _recorded_line(self, value: dict[str, Json]) -> Line:
        body, status, request = value["body"], value.get("status", 200), value["request"]
        if not isinstance(body, str) or type(status) is not int or not isinstance(request, dict):
            raise LineError("line_invalid", "expected body as text, status as number and request as object")
        _as_utf8(body, None)
        path, index, given = value.get("path"), value.get("index"), value.get("id")
        name = f"{path}#{index}" if isinstance(path, str) else f"sha256-{digest_of(dump_json(value)).hex()}"
        sample_id = storable_text(given if isinstance(given, str) and given else name)
        entry = self._entry_of(
            value, sample_id, form="openai", body=body, status=status, request=without_secrets(request)
        )
        return Line(entry, url=value.get("url"))

    def _entry_of(
        self,
        value: dict[str, Json],
        sample_id: str,
        *,
        form: str,
        body: str,
        status: int = 200,
        request: dict[str, Json] | None = None,
    ) -> Entry:
        """What all forms share: the prompt, the mode, the model, the identity."""
        turn, sample_index = (_index(value, key, sample_id) for key in ("turn", "sample_index"))
        asked = self._joined(sample_id, turn) if request is None else _asked_of(request)
        said = value.get("mode") if form == "raw" else None
        if said is None:
            said = mode_of_request(request or {}, self.contract) or asked.mode
        mode = self._mode_of(said, sample_id)
        identity = {"sample_index": sample_index, "turn": turn}
        if asked.messages is not None and request is not None:
            row_key = row_key_of(
                contract=self.contract.name, messages=asked.messages, tools=asked.tools, mode=mode,
                sampling=asked.sampling, max_tokens=asked.max_tokens, **identity,
            )  # fmt: skip
        else:
            row_key = imported_row_key(dataset=self.dataset, sample_id=sample_id, **identity)
        return Entry(
            row_key=row_key,
            sample_id=sample_id,
            turn=turn,
            sample_index=sample_index,
            source="",
            origin=Origin.IMPORT,
            contract=self.contract.name,
            mode=mode,
            model=asked.model or self.options.model or self.contract.default_model,
            form=form,
            body=body,
            status=status,
            messages=asked.messages,
            tools=asked.tools,
            request=request,
            sampling=asked.sampling,
            max_tokens=asked.max_tokens,
            stop=asked.stop,
            assumed=("mode",) if said is None else (),
            tool_ids=asked.tool_ids,
            streamed=asked.streamed,
        )

    def _joined(self, sample_id: str, turn: int) -> _Asked:
        """The prompt that has this id, as `generate` would send it. Later turns answered a longer one, unknown here."""
        prompt = self.prompts.get(sample_id)
        if prompt is None or turn:
            return _Asked()
        messages, tool_ids = rewrite_tool_ids(prompt.messages, self.contract)
        return _Asked(
            messages=messages,
            tools=prompt.tools,
            tool_ids=tool_ids or None,
            mode=prompt.mode,
            max_tokens=prompt.max_tokens,
        )

    def _mode_of(self, said: Json, sample_id: str) -> str:
        """The mode that a line states, else the one that the user or the contract assumes."""
        mode = (self.options.mode or self.contract.default_mode) if said is None else said
        if not isinstance(mode, str) or mode not in self.contract.modes:
            known = ", ".join(sorted(self.contract.modes))
            raise LineError("mode_unknown", f"expected mode as one of {known}, found {mode!r:.80}", sample_id)
        return mode


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What is known of the request."""

    messages: list[dict[str, Json]] | None = None
    tools: list[dict[str, Json]] | None = None
    tool_ids: dict[str, str] | None = None
    mode: str | None = None
    model: str | None = None
    max_tokens: int | None = None
    sampling: dict[str, Json] | None = None
    stop: tuple[str, ...] = ()
    streamed: bool | None = None


def check_options(options: ImportOptions, contract: Contract) -> None:
    """Refuse options that no row could bear.

    Raises:
        ConfigError: the source is no name of a source.
        ContractError: the contract has no such mode.
    """
    contract.mode(options.mode or contract.default_mode)
    if options.source is not None and not is_name(options.source):
        raise ConfigError(f"--source: expected lower-case letters, digits, _ . and -, found {options.source!r:.80}")


def _object_of(line: bytes) -> dict[str, Json]:
    try:
        value = load_json(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise LineError("not_utf8", f"expected UTF-8, found another byte at {error.start}") from None
    except NotJsonError as error:
        raise LineError("not_json", f"expected a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise LineError("line_invalid", f"expected a JSON object, found {type(value).__name__}")
    try:
        canonical_json(value)
    except ValueError:
        raise LineError("line_invalid", "expected JSON nested at most 250 levels deep") from None
    return value


def _asked_of(request: Mapping[str, Json]) -> _Asked:
    messages, tools, stop = (request.get(key) for key in ("messages", "tools", "stop"))
    cap = request.get("max_completion_tokens") or request.get("max_tokens")
    stream, model = request.get("stream"), request.get("model")
    return _Asked(
        messages=messages if _are_messages(messages) else None,
        tools=tools if isinstance(tools, list) and tools else None,
        model=model if isinstance(model, str) else None,
        max_tokens=cap if type(cap) is int and cap > 0 else None,
        sampling={key: request[key] for key in SAMPLING_KEYS if request.get(key) is not None},
        stop=(stop,) if isinstance(stop, str) else tuple(stop) if isinstance(stop, list) else (),
        streamed=stream if isinstance(stream, bool) else None,
    )


def source_of_url(url: Json) -> str | None:
    """`openrouter` for OpenRouter; for other APIs the name in their host (api.example.com → example)."""
    try:
        host = urlsplit(storable_text(url)).hostname if isinstance(url, str) else None
    except ValueError:
        host = None
    if not host:
        return None
    labels = host.split(".")
    name = labels[-2] if len(labels) > 1 and not labels[-1].isdigit() else host
    return name if is_name(name) else None


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


def _as_utf8(body: str, sample_id: str | None) -> str:
    """A body as it came; half of a surrogate pair never came over a wire."""
    if storable_text(body) != body:
        raise LineError("not_utf8", "expected body as UTF-8, found a lone surrogate", sample_id)
    return body


def _sample_id(value: Mapping[str, Json], key: str) -> str:
    sample_id = value[key]
    if isinstance(sample_id, int) and not isinstance(sample_id, bool):
        return str(sample_id)
    if isinstance(sample_id, str) and 0 < len(sample_id) <= 1024:
        return storable_text(sample_id)
    raise LineError("line_invalid", f"expected {key} as text of 1 to 1,024 characters, found {sample_id!r:.80}")


def _index(value: Mapping[str, Json], key: str, sample_id: str) -> int:
    index = value.get(key, 0)
    if type(index) is int and 0 <= index < 2**31:
        return index
    raise LineError("line_invalid", f"expected {key} as a whole number from 0, found {index!r:.80}", sample_id)


def _are_messages(messages: Json) -> bool:
    return isinstance(messages, list) and bool(messages) and all(isinstance(m, dict) for m in messages)
