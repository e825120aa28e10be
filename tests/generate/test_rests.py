from __future__ import annotations

from toolkit.config import Routing
from toolkit.generate.rests import Rests


def fail(rests: Rests, provider: str, times: int, now: float = 0.0) -> bool:
    return [rests.failed(provider, now) for _ in range(times)][-1]


def test_a_provider_that_fails_again_and_again_is_ignored_for_a_while():
    rests = Rests(Routing(only=("moonshotai/int4", "chutes")))
    assert not fail(rests, "Moonshot AI", 4)
    assert fail(rests, "Moonshot AI", 1)
    assert rests.resting(59.0) == ("moonshotai/int4",)
    assert rests.routing(1.0) == Routing(only=("moonshotai/int4", "chutes"), ignore=("moonshotai/int4",))
    assert rests.routing(60.0) == Routing(only=("moonshotai/int4", "chutes"))


def test_the_next_rest_is_longer_until_it_answers_again():
    rests = Rests(Routing(order=("a", "b")))
    fail(rests, "A", 5)
    fail(rests, "A", 5, now=60.0)
    assert rests.resting(179.0) == ("a",)
    for _ in range(20):
        rests.answered("A")
    fail(rests, "A", 20, now=200.0)
    assert rests.resting(259.0) == ("a",)
    assert rests.resting(260.0) == ()


def test_who_mostly_answers_does_not_rest():
    rests = Rests(Routing(order=("a", "b")))
    for _ in range(12):
        rests.answered("A")
    assert not fail(rests, "A", 8)


def test_somebody_is_always_left_of_those_who_may_answer():
    rests = Rests(Routing(only=("a", "b"), ignore=("c",)))
    assert fail(rests, "A", 5)
    assert not fail(rests, "B", 20)
    assert rests.resting(1.0) == ("a",)
    alone = Rests(Routing(order=("a",), allow_fallbacks=False))
    alone.name_slugs({"A": "a", "B": "b"})
    assert not fail(alone, "A", 20)


def test_without_its_slug_nobody_is_rested():
    rests = Rests(Routing())
    assert not fail(rests, "Some Host", 20)
    rests.name_slugs({"Some Host": "somehost/fp8", "Other": "other"})
    assert fail(rests, "Some Host", 1)
    assert rests.routing(1.0).ignore == ("somehost",)


def test_names_that_a_server_invents_are_not_all_remembered():
    rests = Rests(Routing(only=("chutes", "novita")))
    for number in range(5_000):
        rests.answered(f"invented {number}")
        rests.failed(f"made up {number}", now=0.0)
    assert len(rests._records) == 256
    for _ in range(5):
        rested = rests.failed("Chutes", now=1.0)
    assert rested
    assert rests.resting(2.0) == ("chutes",)
