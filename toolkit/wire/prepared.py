"""A line of a dataset that somebody prepared for a trainer: ids, and a mask that says which of them are supervised.

Fields: `input_ids`; one of `loss_mask` (SpecForge, speculators), `completion_mask`, `assistant_masks` (TRL) and
`labels` (-100 where nothing is supervised); and as far as known `attention_mask`, `reasoning`, `content`,
`tool_calls`, `finish_reason`, `native_finish_reason`, `provider`, `model`, `mode`, `usage` or `prompt_tokens` and
`completion_tokens`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolkit.records import IdsSource, Json, Reply
from toolkit.wire.json import NotJsonError, load_json
from toolkit.wire.reply import Fields, NoAnswer, reasoning_of, short

MASKS = ("loss_mask", "completion_mask", "assistant_masks", "labels")
"""Fields that say which ids are supervised; the first that is there counts."""

_IGNORED = -100
_INT32_END = 2**31


class NotOneSplitError(ValueError):
    """Ids that are not one prompt followed by one completion; `reason` is a code."""

    def __init__(self, reason: str, detail: str):
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def is_prepared(line: Mapping[str, Json]) -> bool:
    """Whether a line has ids and a mask, and does not tell its output apart by itself."""
    return "input_ids" in line and "output_ids" not in line and any(line.get(name) is not None for name in MASKS)


def split(line: Mapping[str, Json]) -> tuple[list[int], list[int]]:
    """(prompt ids, output ids) of a line: what stands before the first supervised id, and from it to the end.

    Raises:
        NotOneSplitError: `ids_invalid`, `mask_invalid`, `mask_length`, `labels_differ` (a label that is not its id),
            `padded`, `nothing_supervised`, `prompt_unmarked` (all ids are supervised), or `mask_not_one_split`.
    """
    ids = _flat(line.get("input_ids"))
    if not ids or not all(type(i) is int and 0 <= i < _INT32_END for i in ids):
        raise NotOneSplitError("ids_invalid", f"expected input_ids as ids, found {short(line.get('input_ids'), 80)}")
    name = next((name for name in MASKS if line.get(name) is not None), "loss_mask")
    mask = _mask_of(name, _flat(line.get(name)), ids)
    attended = _flat(line.get("attention_mask"))
    if attended is not None and any(one != 1 for one in attended):
        raise NotOneSplitError("padded", "expected attention_mask as ones, found padding; export the rows without it")
    if 1 not in mask:
        raise NotOneSplitError("nothing_supervised", f"expected supervised ids, found none in {name}")
    begin = mask.index(1)
    if begin == 0:
        raise NotOneSplitError(
            "prompt_unmarked", f"expected a prompt before the first supervised id, found none: {name}"
        )
    if 0 in mask[begin:]:
        place = begin + mask[begin:].index(0)
        raise NotOneSplitError(
            "mask_not_one_split",
            f"expected {name} as zeros, then ones to the end, found a zero at {place} behind ones from {begin}",
        )
    return ids[:begin], ids[begin:]


def read_prepared(status: int, body: str, *, retry_after_s: float | None = None) -> Reply | NoAnswer:
    """Read one line. Its ids are `given`; where it has no text, the parts are read from them by the contract."""
    del retry_after_s, status
    try:
        line = load_json(body)
    except NotJsonError as error:
        return _refuse("not_json", f"expected a JSON object, found {short(body, 80)!r} ({error})")
    if not isinstance(line, Mapping):
        return _refuse("malformed", f"expected a JSON object, found {short(line, 80)}")
    try:
        prompt_ids, output_ids = split(line)
    except NotOneSplitError as error:
        return _refuse(error.reason, error.detail)
    fields = Fields()
    content = line.get("content")
    if content is not None and not isinstance(content, str):
        return _refuse("malformed", f"expected content as text, found {short(content, 80)}")
    reasoning, calls = reasoning_of(fields, line), fields.tool_calls(_with_calls(line))
    usage = fields.mapping(line, "usage") or line
    has_text = content is not None or reasoning is not None or bool(calls)
    return Reply(
        request_id=fields.text(line, "request_id"),
        provider=fields.text(line, "provider"),
        model=fields.text(line, "model"),
        reasoning=reasoning,
        content=content,
        tool_calls=calls,
        finish_reason=fields.text(line, "finish_reason"),
        native_finish_reason=fields.text(line, "native_finish_reason"),
        prompt_tokens=fields.count(usage, "prompt_tokens"),
        completion_tokens=fields.count(usage, "completion_tokens"),
        reasoning_tokens=fields.count(usage, "reasoning_tokens"),
        output_ids=output_ids,
        ids_source=IdsSource.GIVEN,
        prompt_ids=prompt_ids,
        undivided=None if has_text else "",
        notes=tuple(dict.fromkeys(fields.notes)),
    )


def _with_calls(line: Mapping[str, Json]) -> Mapping[str, Json]:
    """The line with its calls as a list, where a table holds them as JSON text."""
    calls = line.get("tool_calls")
    if not isinstance(calls, str):
        return line
    try:
        return {**line, "tool_calls": load_json(calls)}
    except NotJsonError:
        return line


def _mask_of(name: str, values: list[Json] | None, ids: Sequence[int]) -> list[int]:
    """One 0 or 1 for each id."""
    if values is None:
        raise NotOneSplitError("mask_invalid", f"expected {name} as a list, found another type")
    if len(values) != len(ids):
        raise NotOneSplitError("mask_length", f"expected {name} as long as input_ids ({len(ids)}), found {len(values)}")
    if name != "labels":
        if not all(type(value) in (int, bool) and value in (0, 1) for value in values):
            raise NotOneSplitError("mask_invalid", f"expected {name} as zeros and ones, found {short(values, 80)}")
        return [int(value) for value in values]
    place = next(
        (at for at, (label, i) in enumerate(zip(values, ids, strict=True)) if label not in (_IGNORED, i)), None
    )
    if place is not None:
        found = short(values[place], 40)
        raise NotOneSplitError("labels_differ", f"expected labels[{place}] as -100 or {ids[place]}, found {found}")
    return [int(label != _IGNORED) for label in values]


def _flat(value: Json) -> list[Json] | None:
    """A list; of a list of one list (a batch of one) the inner one."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    return value if isinstance(value, list) else None


def _refuse(reason: str, detail: str) -> NoAnswer:
    return NoAnswer(reason=reason, detail=detail, transient=False)
