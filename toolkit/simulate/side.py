"""Bodies of the calls beside completions: OpenRouter's key, credits and generation, and the simulation's own books."""

from __future__ import annotations

import time

from toolkit.simulate.ledger import Entry
from toolkit.simulate.limits import Limiter
from toolkit.simulate.refusals import Refusal, error_body
from toolkit.simulate.shown import Body
from toolkit.simulate.simulation import Simulation


def key_body(simulation: Simulation, *, is_management: bool) -> Body:
    """GET /api/v1/key."""
    spent = simulation.account.spent_usd
    limit = simulation.scenario.account.key_limit_usd
    usage = dict.fromkeys(("usage", "usage_daily", "usage_weekly", "usage_monthly"), spent)
    by_own_key = dict.fromkeys(("byok_usage", "byok_usage_daily", "byok_usage_weekly", "byok_usage_monthly"), 0)
    return {
        "data": {
            "label": "simulated",
            "limit": limit,
            "limit_remaining": simulation.account.key_remaining_usd,
            "limit_reset": None,
            "include_byok_in_limit": False,
            **usage,
            **by_own_key,
            "is_free_tier": False,
            "is_management_key": is_management,
            "expires_at": None,
        }
    }


def credits_of(simulation: Simulation, *, is_management: bool) -> Refusal:
    """GET /api/v1/credits: 403 with an ordinary key. Endless credits are told as 1,000,000 dollars."""
    if not is_management:
        return Refusal(status=403, body=error_body(403, "Only management keys can fetch credits for an account"))
    bought = simulation.scenario.account.credits_usd
    data = {"total_credits": 1e6 if bought is None else bought, "total_usage": simulation.account.spent_usd}
    return Refusal(status=200, body={"data": data})


def generation_of(simulation: Simulation, generation_id: str) -> Refusal:
    """GET /api/v1/generation: 404 for a while after the reply, and for ids that nobody was given."""
    found = simulation.generations.get(generation_id)
    if found is None or time.time() < found.ready:
        return Refusal(status=404, body=error_body(404, f"Generation {generation_id[:80]} not found"))
    return Refusal(status=200, body={"data": found.data()})


def old_ledger_body(simulation: Simulation, *, with_ids: bool) -> Body:
    """GET /simulator/ledger: what was billed."""
    return {
        "billed": [entry.as_json(with_ids=with_ids) for entry in simulation.ledger.billed()],
        "cost_usd": simulation.ledger.cost_usd,
        "requests": dict(simulation.requests),
        "faults": dict(simulation.faults),
    }


def ledger_body(simulation: Simulation, *, with_ids: bool, after_s: int) -> Body:
    """GET /_ledger: every request, totals, and what the limits let through from `after_s` seconds on."""
    limiters = {"server": simulation.limiter, **simulation.limiters}
    entries = simulation.ledger.entries
    return {
        "entries": [entry.as_json(with_ids=with_ids) for entry in entries],
        "totals": _totals(entries),
        "limits": {name: _tally(limiter, after_s) for name, limiter in limiters.items()},
        "account": {
            "spent_usd": simulation.account.spent_usd,
            "held_usd": simulation.account.held_usd,
            "balance_usd": simulation.account.balance_usd,
            "key_remaining_usd": simulation.account.key_remaining_usd,
        },
        "faults": dict(simulation.faults),
    }


def _totals(entries: list[Entry]) -> Body:
    billed = [entry for entry in entries if entry.billed]
    return {
        "requests": len(entries),
        "open": sum(entry.ended is None for entry in entries),
        "billed": len(billed),
        "billed_lost": sum(entry.delivered is False for entry in billed),
        "prompt_tokens": sum(entry.prompt_tokens for entry in billed),
        "completion_tokens": sum(entry.completion_tokens for entry in billed),
        "cost_usd": sum(entry.cost_usd for entry in billed),
    }


def _tally(limiter: Limiter, after_s: int) -> Body:
    tally = limiter.tally(after_s=after_s)
    return {
        "seconds": tally.seconds,
        "allowed": tally.allowed,
        "refused": tally.refused,
        "goodput_per_s": tally.goodput_per_s,
        "refused_share": tally.refused_share,
        "in_flight": limiter.in_flight,
    }


def model_info_body(simulation: Simulation) -> Body:
    """GET /get_model_info of an engine."""
    return {
        "model_path": simulation.contract.default_model,
        "tokenizer_path": simulation.contract.default_model,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "has_image_understanding": False,
        "has_audio_understanding": False,
    }
