from __future__ import annotations

import logging
import pickle
from pathlib import Path

import pytest

from toolkit.config import DatasetSettings, Secret, parse_settings, read_settings
from toolkit.errors import ConfigError
from toolkit.store.workspace import Workspace


def settings_of(text: str, **options: list[str]):
    return parse_settings(text.encode(), "tokenproof.toml", **options)


def test_a_missing_file_gives_the_defaults(tmp_path: Path):
    settings = read_settings(Workspace(tmp_path))
    assert settings.dataset("B3") == DatasetSettings(suites=("kimi-k2.5", "providers"))
    endpoint = settings.endpoint("openrouter")
    assert (endpoint.url, endpoint.key_env, endpoint.source) == (
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        "openrouter",
    )
    assert (endpoint.concurrency, endpoint.timeout_s, endpoint.max_tries, endpoint.stream) == (32, 600.0, 5, False)


def test_a_dataset_replaces_the_defaults_key_by_key():
    settings = settings_of("""
        [defaults]
        max_tokens = 100
        samples = 2
        sampling = { temperature = 1.0, top_p = 0.95 }
        [datasets.B3]
        max_tokens = 200
        sampling = { temperature = 0.6 }
        suites = ["strict", "kimi-k2.5"]
    """)
    b3, b4 = settings.dataset("B3"), settings.dataset("B4")
    assert (b3.max_tokens, b3.samples, b3.sampling, b3.suites) == (
        200, 2, {"temperature": 0.6}, ("strict", "kimi-k2.5"),
    )  # fmt: skip
    assert (b4.max_tokens, b4.samples, b4.sampling) == (100, 2, {"temperature": 1.0, "top_p": 0.95})


def test_the_suite_follows_the_contract():
    settings = settings_of('[datasets.A]\ncontract = "gpt-oss"\n[datasets.B]\ncontract = "contracts/mine.toml"')
    assert settings.dataset("A").suites == ("gpt-oss", "providers")
    assert settings.dataset("B").suites == ("mine", "providers")


def test_another_server_has_its_own_source_and_is_never_sent_the_key_of_openrouter(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-secret")
    endpoint = settings_of('[endpoints.sglang]\nurl = "http://10.0.0.5:30000/v1/"').endpoint("sglang")
    assert (endpoint.source, endpoint.url, endpoint.key()) == ("sglang", "http://10.0.0.5:30000/v1", None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[default]\nmax_tokens = 1", ["default: unknown key", "did you mean defaults?"]),
        ("[datasets.B3]\nmax_token = 1", ["datasets.B3.max_token: unknown key", "did you mean max_tokens?"]),
        ("[defaults]\nmax_tokens = 0", ["defaults.max_tokens: expected int >= 1, found 0"]),
        ('[defaults]\nmax_tokens = "8192"', ["defaults.max_tokens: expected a whole number, found '8192'"]),
        ("[defaults]\nsampling = { temprature = 1 }", ["defaults.sampling.temprature", "unknown", "temperature"]),
        ('[datasets.B3]\nsampling = { top_p = "1" }', ["datasets.B3.sampling.top_p", "a number"]),
        ("[defaults]\nsampling = { temperature = nan }", ["defaults.sampling.temperature", "nan"]),
        ("[defaults]\nsampling = { temperature = true }", ["defaults.sampling.temperature", "True"]),
        ("[defaults]\nsampling = { seed = 1.5 }", ["defaults.sampling.seed", "whole"]),
        ('[defaults]\nsampling = { stop = ["a"] }', ["defaults.sampling.stop", "unknown"]),
        ('[defaults]\nsampling = { reasoning_effort = "none" }', ["mode"]),
        ('[defaults]\nendpoint = "sglang"', ["defaults.endpoint", "expected one of openrouter", "sglang"]),
        ("[endpoints.vllm]\nconcurrency = 1", ["endpoints.vllm", "url is missing"]),
        ('[endpoints.vllm]\nurl = "ftp://x/v1"', ["endpoints.vllm.url"]),
        ('[endpoints.vllm]\nurl = "http://[x/v1"', ["endpoints.vllm.url"]),
        ('[endpoints.vllm]\nurl = "https://me:pass@x/v1"', ["endpoints.vllm.url", "environment"]),
        ('[endpoints.openrouter]\nurl = "http://openrouter.ai/api/v1"', ["endpoints.openrouter.url", "https"]),
        (
            "[endpoints.openrouter]\nprovider = { onyl = [] }",
            ["endpoints.openrouter.provider.onyl: unknown key", "did you mean only?"],
        ),
        (
            '[endpoints.openrouter]\nprovider = { only = "chutes" }',
            ["endpoints.openrouter.provider.only: expected a list"],
        ),
        ('[endpoints.openrouter]\nprovider = { quantizations = ["int5"] }', ["int5"]),
        ('[endpoints.vllm]\nurl = "http://x/v1"\nprovider = { zdr = true }', ["endpoints.vllm.provider"]),
        ('[endpoints.openrouter]\nextra = { stop = ["a"] }', ["endpoints.openrouter.extra", "stop"]),
        ('[endpoints.openrouter]\nextra = { models = ["a"] }', ["endpoints.openrouter.extra", "models"]),
        ('[endpoints.openrouter]\nmax_tokens_field = "cap"', ["max_tokens_field"]),
        ("[endpoints.openrouter]\ntimeout_s = 0", ["timeout_s"]),
        ("[defaults", ["tokenproof.toml", "TOML"]),
    ],
)
def test_whatever_is_wrong_is_named_with_its_place(text: str, words: list[str]):
    with pytest.raises(ConfigError) as caught:
        settings_of(text)
    assert str(caught.value).startswith("tokenproof.toml: ")
    for word in words:
        assert word in str(caught.value)


def test_bytes_that_are_no_text_are_refused():
    with pytest.raises(ConfigError, match="UTF-8"):
        parse_settings(b"[defaults]\nmodel = '\xff'", "tokenproof.toml")


def test_a_table_that_names_only_the_start_of_a_dataset_is_refused():
    with pytest.raises(ConfigError, match=r"datasets\.B3: .*B3_magicoder"):
        settings_of("[datasets.B3]\nsamples = 2", folders=["B3_magicoder"])
    assert settings_of("[datasets.B3]\nsamples = 2", folders=["B3", "B3_old"]).dataset("B3").samples == 2


def test_every_fault_is_told_at_once_each_with_the_file():
    with pytest.raises(ConfigError) as caught:
        settings_of('[defaults]\nmax_token = 1\n[budget]\ndollars = "3"')
    lines = str(caught.value).splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["tokenproof.toml"] * 2


def test_a_table_that_names_a_dataset_in_other_letters_is_refused():
    with pytest.raises(ConfigError, match=r"datasets\.b3: .*did you mean B3\?"):
        settings_of('[datasets.b3]\nproviders = ["Chutes"]', folders=["B3", "B3_old"])
    assert settings_of("[datasets.b9]\nsamples = 2", folders=["B3"]).dataset("b9").samples == 2


def test_routing_is_sent_as_it_was_written():
    endpoint = settings_of("""
        [endpoints.openrouter]
        provider = { only = ["chutes"], allow_fallbacks = false, sort = { by = "price" }, max_price = { prompt = 1 } }
    """).endpoint("openrouter")
    assert endpoint.provider.as_json() == {
        "only": ["chutes"],
        "allow_fallbacks": False,
        "sort": {"by": "price", "partition": "model"},
        "max_price": {"prompt": 1},
    }
    assert settings_of("").endpoint("openrouter").provider.as_json() == {}


def test_an_unknown_endpoint_is_named_with_those_that_exist():
    with pytest.raises(ConfigError, match="expected one of openrouter"):
        settings_of("").endpoint("sglang")


@pytest.mark.parametrize("found", ["", "  \n", "two words", "line\nbreak", "schlüssel"])
def test_a_key_that_cannot_be_sent_is_refused_by_the_name_of_its_variable_only(found: str):
    endpoint = settings_of("").endpoint("openrouter")
    with pytest.raises(ConfigError, match="OPENROUTER_API_KEY") as caught:
        endpoint.key({"OPENROUTER_API_KEY": found})
    assert not found.strip() or found.strip() not in str(caught.value)


def test_a_key_shows_nowhere(caplog: pytest.LogCaptureFixture):
    secret = settings_of("").endpoint("openrouter").key({"OPENROUTER_API_KEY": " sk-or-v1-secret\n"})
    assert secret is not None
    assert secret.reveal() == "sk-or-v1-secret"
    logging.getLogger("test").warning("%s %r", secret, [secret])
    assert "secret" not in f"{secret} {secret!r} {[secret]} {caplog.text}"
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert secret.hide_in('{"message": "bad key sk-or-v1-secret"}') == '{"message": "bad key ***"}'
    assert Secret("the").hide_in("the answer") == "the answer"
