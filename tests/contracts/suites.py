"""The shipped suites, each made from that of Kimi-K2.5 and its own contract, so that none drifts from the others."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from tests.conftest import ROOT
from toolkit.contract import Contract, read_contract

TEMPLATE = "kimi-k2.5"
Expectation = dict[str, Any]

IMPOSSIBLE = "An impossibility: one such row shows that a rule is wrong, so the gate closes even for one."
PROMPT_WORDS = ("user", "User", "im_start", "system", "start_header")


def path_of(name: str) -> Any:
    """Where the suite of a contract lies."""
    return ROOT / "expectations" / f"{name}.json"


def suite_of(contract: Contract) -> str:
    """The suite of a contract, as its file has it."""
    suite = json.loads(path_of(TEMPLATE).read_text(encoding="utf-8"))
    if contract.name == TEMPLATE:
        return written(suite)
    suite["name"] = contract.name
    suite["expectations"] = [made for e in suite["expectations"] for made in _made_for(contract, e)]
    return written(suite)


def written(suite: dict[str, Any]) -> str:
    """A suite as text."""
    return json.dumps(suite, indent=2, ensure_ascii=False) + "\n"


def _made_for(contract: Contract, template: Expectation) -> list[Expectation]:
    """What an expectation of the template becomes; nothing where the contract has no such thing."""
    expectation = copy.deepcopy(template)
    expectation_id = expectation["meta"]["id"]
    if expectation_id in _THINKING and contract.think is None:
        return []
    change = _CHANGES.get(expectation_id)
    return [expectation] if change is None else change(contract, expectation)


_THINKING = (
    "begin_think_absent",
    "instant_without_think",
    "thinking_closed",
    "thinking_closed_or_calls",
    "thinking_cut",
)


def _contract_known(contract: Contract, expectation: Expectation) -> list[Expectation]:
    expectation["kwargs"]["value_set"] = [contract.name]
    return _respell(expectation, {TEMPLATE: contract.name})


def _mode_known(contract: Contract, expectation: Expectation) -> list[Expectation]:
    modes = list(contract.modes)
    expectation["kwargs"]["value_set"] = modes
    if len(modes) == 1:
        expectation["meta"] |= {
            "says": f"The mode is {modes[0]}.",
            "wrong": f"The row's mode is not {modes[0]}.",
            "why": "The contract knows no other mode.",
        }
    return [expectation]


def _ids_in_vocabulary(contract: Contract, expectation: Expectation) -> list[Expectation]:
    expectation["kwargs"]["max_value"] = contract.vocab_size - 1
    return _respell(expectation, {str(read_contract(TEMPLATE).vocab_size): str(contract.vocab_size)})


def _control_ids_absent(contract: Contract, expectation: Expectation) -> list[Expectation]:
    inside = contract.output_ids()
    outside = [spelling for spelling in contract.special if contract.id_of(spelling) not in inside]
    told = [s for s in contract.markers if s in outside and any(word in s for word in PROMPT_WORDS)]
    if told:
        return _respell(expectation, {"<|im_user|>": told[0]})
    return _respell(expectation, {"in prompts only": "in no answer", "<|im_user|>": outside[-1]})


def _begin_think(contract: Contract, expectation: Expectation) -> list[Expectation]:
    if contract.think is None or contract.think_open_in == "prompt":
        return _in_think_spelling(contract, expectation)
    begin = contract.think.begin
    once, absent = copy.deepcopy(expectation), copy.deepcopy(expectation)
    thinking = [name for name, mode in contract.modes.items() if mode.thinks]
    instant = [name for name, mode in contract.modes.items() if not mode.thinks]
    once["kwargs"] |= {"value_set": [1], "mostly": 0.99}
    whole = [_is("mode", name) for name in thinking] + [_is("truncated", value=False)]
    once["kwargs"]["row_condition"] = {"type": "and", "conditions": whole}
    once["meta"] |= {
        "id": "begin_think_once",
        "says": f"A whole answer in thinking mode holds {begin} once.",
        "wrong": f"The answer was not cut, and yet {begin} is missing or stands more than once.",
        "why": f"The model opens its thoughts itself. A wrong rule fails nearly all rows; single rows, where it "
        f"went without {begin}, are left out.",
    }
    absent["kwargs"]["row_condition"] = _is("mode", instant[0]) if instant else None
    absent["meta"] |= {
        "says": f"No answer in instant mode holds {begin}.",
        "wrong": f"The answer holds {begin}, though the model was not to think.",
        "why": f"{IMPOSSIBLE} The rows were asked for in another mode than they say.",
    }
    return [once, absent] if instant else [once]


def _instant_only(contract: Contract, expectation: Expectation) -> list[Expectation]:
    if all(mode.thinks for mode in contract.modes.values()):
        return []
    return _in_think_spelling(contract, expectation)


def _in_think_spelling(contract: Contract, expectation: Expectation) -> list[Expectation]:
    think = contract.think
    return [expectation] if think is None else _respell(expectation, {"<think>": think.begin, "</think>": think.end})


def _terminal_last(contract: Contract, expectation: Expectation) -> list[Expectation]:
    stop, tool = (f"{s} ({contract.id_of(s)})" for s in (contract.terminals["stop"], contract.terminals["tool_calls"]))
    expectation["kwargs"]["value_set"] = sorted(contract.terminal_ids)
    either, after = (stop, stop) if stop == tool else (f"{stop} or {tool}", f"{stop}, or {tool} after a tool call")
    expectation["meta"] |= {
        "says": f"An answer that was not cut ends with {after}.",
        "wrong": f"The answer was not cut, and yet does not end with {either}.",
    }
    return [expectation]


def _is(column: str, value: str | bool) -> dict[str, Any]:
    return {"type": "comparison", "column": {"name": column}, "operator": "==", "parameter": value}


def _respell(expectation: Expectation, words: dict[str, str]) -> list[Expectation]:
    """Other words in what an expectation says."""
    meta = expectation["meta"]
    for key in ("says", "wrong", "why"):
        for old, new in words.items():
            meta[key] = meta[key].replace(old, new)
    return [expectation]


_CHANGES: dict[str, Callable[[Contract, Expectation], list[Expectation]]] = {
    "contract_known": _contract_known,
    "mode_known": _mode_known,
    "ids_in_vocabulary": _ids_in_vocabulary,
    "control_ids_absent": _control_ids_absent,
    "begin_think_absent": _begin_think,
    "instant_without_think": _instant_only,
    "thinking_closed": _in_think_spelling,
    "thinking_closed_or_calls": _in_think_spelling,
    "thinking_cut": _in_think_spelling,
    "terminal_last": _terminal_last,
}
