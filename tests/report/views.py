"""Rows as inspection finds them, made by hand: one good enough to show everything, and one that is all hostile."""

from __future__ import annotations

from typing import Any

from toolkit.inspection.model import (
    Chip,
    ChipKind,
    Distributions,
    Fault,
    Group,
    Inspection,
    Part,
    Slice,
    TokenView,
    Window,
)


def chip(token_id: int, text: str, kind: ChipKind = ChipKind.TEXT, spells: str = "") -> Chip:
    return Chip(id=token_id, text=text, kind=kind, spells=spells)


OUTPUT = (
    chip(623, " The"),
    chip(198, "\n"),
    chip(162, "\\xe6", ChipKind.BYTES, "漢"),
    chip(163604, "<|media_end|>", ChipKind.CONTROL),
    chip(163586, "<|im_end|>", ChipKind.CONTROL),
)

SHIFTED = Fault(
    code="ids_shifted",
    says="the special ids are numbered as by a tokenizer that closes gaps",
    part=Part.OUTPUT,
    at=13,
    expected="163607 </think>",
    found="163604 <|media_end|>",
    instead=(chip(163607, "</think>", ChipKind.CONTROL),),
)


def view(sample_id: str = "mc-00012", **changes: Any) -> TokenView:
    """A row of Inceptron whose special ids are shifted; the ids 10 to 14 of 40 are shown."""
    fields: dict[str, Any] = {
        "sample_id": sample_id,
        "turn": 0,
        "sample_index": 0,
        "row_key": "ab" * 32,
        "shard": "shards/part-00000.parquet",
        "row_index": 7,
        "source": "openrouter",
        "provider": "Inceptron",
        "model": "moonshotai/kimi-k2.5-0127",
        "mode": "thinking",
        "ids_source": "rebuilt",
        "rebuild_status": "complete",
        "finish_reason": "stop",
        "native_finish_reason": "stop",
        "n_prompt": 21,
        "n_output": 40,
        "tokens": {"completion_tokens": 39, "reasoning_tokens": None, "prompt_tokens": 21},
        "notes": (),
        "reasons": ("reencode_equal", "evidence_known"),
        "supervised": False,
        "windows": (
            Window(part=Part.PROMPT, start=20, chips=(chip(163606, "<think>", ChipKind.CONTROL),)),
            Window(part=Part.OUTPUT, start=10, chips=OUTPUT),
        ),
        "faults": (SHIFTED,),
        "reply": '{"provider": "Inceptron"}',
    }
    return TokenView(**fields | changes)


def hostile_view(text: str, number: int = 0) -> TokenView:
    """Every string that can come from outside is `text`."""
    fault = Fault(code=text, says=text, part=Part.OUTPUT, at=0, until=2, expected=text, found=text,
                  instead=(chip(5, text),))  # fmt: skip
    return view(
        text,
        turn=number,
        shard=text,
        source=text,
        provider=text,
        model=text,
        mode=text,
        ids_source=text,
        rebuild_status=text,
        finish_reason=text,
        native_finish_reason=text,
        notes=(text, text),
        reasons=(text, "evidence_known"),
        windows=(
            Window(part=Part.OUTPUT, start=0, chips=(chip(1, text), chip(2, text, ChipKind.BYTES, text))),
            Window(part=Part.OUTPUT, start=30, chips=(chip(-4, text, ChipKind.OUTSIDE),)),
        ),
        faults=(fault, Fault(code=text, says=text)),
        reply=text,
    )


BINS = (2, 4, 8, 16)


def group(provider: str | None, **changes: Any) -> Group:
    fields: dict[str, Any] = {
        "source": "sglang" if provider is None else "openrouter",
        "provider": provider,
        "rows": 100,
        "closing": 0,
        "lengths": (0, 40, 60, 0),
        "reasoning": (10, 40, 50, 0),
        "answers": (50, 50, 0, 0),
        "prompts": (0, 100, 0, 0),
        "counts": ((0, 100),),
        "prompt_counts": ((0, 100),),
        "finish": (("stop", 90), ("length", 8), (None, 2)),
    }
    return Group(**fields | changes)


def stretch(rows: int = 25, closing: int = 0, **changes: Any) -> Slice:
    fields: dict[str, Any] = {
        "shard": "shards/part-00000.parquet", "row_index": 0, "rows": rows, "quarantined": closing, "closing": closing,
        "cut": 1, "uncounted": closing, "median_ids": 12.0, "by_group": (rows, 0),
    }  # fmt: skip
    return Slice(**fields | changes)


def distributions(**changes: Any) -> Distributions:
    """Two groups, eight stretches; Inceptron's rows are bad from the fifth on."""
    slices = tuple(stretch(closing=10 if at >= 4 else 0, row_index=25 * at) for at in range(8))
    fields: dict[str, Any] = {
        "bins": BINS,
        "groups": (group(None), group("Inceptron", closing=40, counts=((0, 20), (1, 70), (3, 10)))),
        "slices": slices,
        "shard_starts": (4,),
    }
    return Distributions(**fields | changes)


def inspection(*views: TokenView, **changes: Any) -> Inspection:
    fields: dict[str, Any] = {"distributions": distributions(), "views": views or (view(),)}
    return Inspection(**fields | changes)
