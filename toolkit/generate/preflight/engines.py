"""An engine of one's own: whether it is up, and which model it serves. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from toolkit.contract import Contract
from toolkit.generate.preflight.checks import Check, Result
from toolkit.generate.preflight.fetching import Fetched

HEALTH = "/health"
MODEL_INFO = "/get_model_info"
_PATH_LIMIT = 160


def health_check(name: str, health: Fetched) -> Check:
    """What `GET /health` says: 200, or 503 while it starts, stops or hangs."""
    if health.is_ok:
        return Check(about=name, what="health", result=Result.OK, found="up")
    if health.status == 503 or health.status is None:
        return Check(about=name, what="health", result=Result.FAIL, found=health.words, expected="status 200")
    return Check(about=name, what="health", result=Result.UNKNOWN, found=f"{health.words}: says nothing")


def model_checks(name: str, info: Fetched, contract: Contract) -> Iterator[Check]:
    """What `GET /get_model_info` of SGLang says of model and tokenizer.

    A path on the server's disk may have any name: only a name that is another contract's model speaks against it,
    and none proves the weights.
    """
    value = info.value if info.is_ok else None
    if not isinstance(value, Mapping):
        yield Check(about=name, what="model", result=Result.UNKNOWN, found=f"{info.words}: names no model")
        return
    for key, what in (("model_path", "model"), ("tokenizer_path", "tokenizer")):
        path = value.get(key)
        if not isinstance(path, str) or not path:
            yield Check(about=name, what=what, result=Result.UNKNOWN, found=f"{key} is not told")
            continue
        known = contract.accepts_model(path) or contract.accepts_model(path.rstrip("/").rpartition("/")[2])
        found = path[:_PATH_LIMIT]
        yield Check(
            about=name, what=what, result=Result.OK if known else Result.WARN, found=found,
            expected="" if known else f"a name of {contract.title}: {', '.join(contract.models[:3])}",
        )  # fmt: skip
    if value.get("is_generation") is False:
        yield Check(about=name, what="model", result=Result.FAIL, found="the server does not generate text")
