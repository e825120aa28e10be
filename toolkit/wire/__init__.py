"""What comes over the wire, as values: pure functions from bytes to `Reply` or `NoAnswer`.

`openai` reads chat completions (OpenRouter, vLLM, SGLang's OpenAI face, Fireworks …), as JSON behind any
white space or as an SSE transcript; `sglang` reads SGLang's native /generate, likewise; `raw` reads a line of an
in-house `raw_responses.jsonl`; `prepared` reads a row of a dataset that was prepared for a trainer.
"""

from toolkit.wire.json import dump_json, load_json
from toolkit.wire.openai import read_completion
from toolkit.wire.prepared import read_prepared
from toolkit.wire.raw import read_raw
from toolkit.wire.reply import NoAnswer
from toolkit.wire.sglang import read_generate

FORMS = {"openai": read_completion, "prepared": read_prepared, "raw": read_raw, "sglang": read_generate}
"""How a stored body is read again, by the name in `Entry.form`: (status, body) → Reply | NoAnswer."""

__all__ = [
    "FORMS",
    "NoAnswer",
    "dump_json",
    "load_json",
    "read_completion",
    "read_generate",
    "read_prepared",
    "read_raw",
]
