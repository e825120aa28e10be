"""Contracts: the shipped ones read; every fault of a file is an error that names the file and the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolkit.contract import SHIPPED, Contract, own_contracts, parse_contract, read_contract, shipped_contracts
from toolkit.errors import ConfigError, ContractError
from toolkit.vocabulary import load_vocabulary

KIMI = (SHIPPED / "kimi-k2.5.toml").read_text(encoding="utf-8")


def changed(old: str, new: str) -> bytes:
    """Kimi's file with one line changed; the test fails if that line is not there exactly once."""
    assert KIMI.count(old) == 1, old
    return KIMI.replace(old, new).encode()


@pytest.mark.parametrize("name", shipped_contracts())
def test_shipped_contracts_read(name: str) -> None:
    contract = read_contract(name)
    assert contract.name == name
    assert name in shipped_contracts()
    assert len(contract.sha256) == 64
    assert contract.path == str(SHIPPED / f"{name}.toml")
    assert contract.default_mode in contract.modes
    assert contract.accepts_model(contract.default_model)


def test_kimi_ids(kimi: Contract) -> None:
    assert kimi.vocab_size == 163840
    assert kimi.terminal_ids == {163586}
    assert (kimi.id_of("<think>"), kimi.id_of("</think>")) == (163606, 163607)
    assert kimi.tool_ids == {163595, 163596, 163597, 163598, 163599}
    assert kimi.call_begin_id == 163597
    assert kimi.output_ids() == {163586, 163607, 163595, 163596, 163597, 163598, 163599}
    assert kimi.mode("thinking").thinks
    assert not kimi.mode("instant").thinks


def test_harmony_has_two_terminals() -> None:
    contract = read_contract("gpt-oss")
    assert contract.terminal_ids == {200002, 200012}
    assert contract.tool_ids == {200003, 200012}
    assert contract.call_begin_id == 200012


FAULTS = [
    # (what is wrong, line of the file, the line instead, what the message says)
    ("misspelt key", "default_mode =", "defaul_mode =", "defaul_mode"),
    ("misspelt key in a table", 'section_end = "', 'section_ends = "', "section_ends"),
    ("misspelt key of the vocabulary", "base_tokens = 163584", "base_token = 163584", "base_token"),
    ("missing key", 'title = "Kimi-K2.5"\n', "", "title"),
    ("text for a number", "vocab_size = 163840", 'vocab_size = "163840"', "vocab_size"),
    ("number for text", 'stop = "<|im_end|>"\n', "stop = 163586\n", "terminals"),
    ("text for a list", 'prompt_ends_with = ["<think>"]', 'prompt_ends_with = "<think>"', "prompt_ends_with"),
    ("think_open_in unknown", 'think_open_in = "prompt"', 'think_open_in = "somewhere"', "think_open_in"),
    ("not TOML", 'name = "kimi-k2.5"', "name = ", "not TOML"),
    ("key twice", 'title = "Kimi-K2.5"', 'title = "a"\ntitle = "b"', "not TOML"),
    ("hash in the file", 'title = "Kimi-K2.5"', 'title = "K"\nsha256 = "00"', "sha256"),
    ("id twice", '"[PAD]" = 163839', '"[PAD]" = 163838', "'[PAD]' and '[UNK]' both have the id 163838"),
    ("ids shifted", '"</think>" = 163607', '"</think>" = 163604', "'</think>' and '<|media_end|>' both have the id"),
    ("id at the vocabulary's size", '"[PAD]" = 163839', '"[PAD]" = 163840', "'[PAD]' = 163840; expected 163584 to"),
    ("id among base tokens", '"[BOS]" = 163584', '"[BOS]" = 163583', "'[BOS]' = 163583"),
    ("id negative", '"[BOS]" = 163584', '"[BOS]" = -1', "'[BOS]' = -1"),
    ("empty spelling", '"[PAD]" = 163839', '"" = 163839', "special: an empty spelling"),
    ("no models", KIMI[KIMI.index("models = [") : KIMI.index("default_mode")], "models = []\n", "models"),
    ("terminal missing", '[terminals]\nstop = "<|im_end|>"\n', "[terminals]\n", "terminals: expected both stop and"),
    ("terminal of a third outcome", "[terminals]\n", '[terminals]\nend = "<|im_end|>"\n', "terminals"),
    (
        "terminal unknown",
        '[terminals]\nstop = "<|im_end|>"',
        '[terminals]\nstop = "<|end|>"',
        "terminals.stop: '<|end|>'",
    ),
    ("marker unknown", '  "<think>", "</think>",\n]', '  "<thinks>", "</think>",\n]', "markers: '<thinks>'"),
    ("end of thinking unknown", 'end = "</think>"', 'end = "</thinks>"', "think.end: '</thinks>'"),
    (
        "tool spelling unknown",
        'section_end = "<|tool_calls_section_end|>"',
        'section_end = "<|x|>"',
        "tools.section_end",
    ),
    (
        "parts of a call in another order",
        'call = ["<|tool_call_begin|>", "{id}",',
        'call = ["{id}", "<|tool_call_begin|>",',
        "tools.call: expected",
    ),
    ("default mode unknown", 'default_mode = "thinking"', 'default_mode = "deep"', "default_mode: 'deep'"),
    (
        "unknown special in the output",
        'output = ["{reasoning}", "</think>",',
        'output = ["{reasoning}", "</thought>",',
        "modes.thinking.output: '</thought>'",
    ),
    (
        "unknown part in the output",
        'output = ["{reasoning}", "</think>",',
        'output = ["{reasons}", "</think>",',
        "modes.thinking.output: '{reasons}'",
    ),
    (
        "terminal not last",
        'output = ["{reasoning}", "</think>", "{content}", "{tools}", "{terminal}"]',
        'output = ["{reasoning}", "</think>", "{terminal}", "{content}", "{tools}"]',
        "modes.thinking.output: expected {terminal} last",
    ),
    (
        "content missing",
        'output = ["{reasoning}", "</think>", "{content}", "{tools}", "{terminal}"]',
        'output = ["{reasoning}", "</think>", "{tools}", "{terminal}"]',
        "modes.thinking.output: expected {content}",
    ),
    (
        "reasoning twice",
        'output = ["{reasoning}", "</think>",',
        'output = ["{reasoning}", "{reasoning}", "</think>",',
        "modes.thinking.output: expected {reasoning} at most once",
    ),
    (
        "a part in the prompt's tail",
        'prompt_ends_with = ["<think>"]',
        'prompt_ends_with = ["{content}"]',
        "modes.thinking.prompt_ends_with",
    ),
    ("reason in upper case", 'stop = ["stop",', 'stop = ["STOP",', "finish.stop: expected lower case, found 'STOP'"),
    ("name of a path", 'name = "kimi-k2.5"', 'name = "../kimi"', "name: expected up to 100 letters, digits, dots"),
    (
        "typo told with the likely key",
        "default_mode =",
        "defaul_mode =",
        "defaul_mode: unknown key; did you mean default",
    ),
    (
        "found is told",
        "vocab_size = 163840",
        'vocab_size = "163840"',
        "vocab_size: expected a whole number, found '1638",
    ),
    (
        "choices are told",
        'think_open_in = "prompt"',
        'think_open_in = "tail"',
        "expected one of 'prompt', 'completion', ",
    ),
    ("missing key is named", 'title = "Kimi-K2.5"\n', "", "title: missing"),
    (
        "vocabulary of no kind",
        'from = "splintr:kimi_k2"',
        'from = "kimi_k2"',
        "vocabulary.from: expected splintr:NAME, ",
    ),
    ("vocabulary without a name", 'from = "splintr:kimi_k2"', 'from = "folder:"', "vocabulary.from: expected splintr"),
    ("vocabulary without size", "vocab_size = 163840", "vocab_size = 0", "vocab_size: expected 1 to 16777216, found 0"),
    ("vocabulary without end", "vocab_size = 163840", f"vocab_size = {10**300}", "vocab_size: expected 1 to 16777216"),
    ("no base tokens", "base_tokens = 163584", "base_tokens = 0", "vocabulary.base_tokens: expected 1 to vocab_size"),
    ("hash cut", 'ranks_sha256 = "b6', 'ranks_sha256 = "', "vocabulary.ranks_sha256: expected 64 digits"),
    (
        "request that JSON cannot say",
        "request = { reasoning = { enabled = true } }",
        "request = { reasoning = nan }",
        "modes.thinking.request: expected what JSON can say",
    ),
    (
        "request with a day",
        "request = { reasoning = { enabled = true } }",
        "request = { since = 2026-01-01 }",
        "modes.thinking.request: expected what JSON can say",
    ),
    ("nested", 'title = "Kimi-K2.5"', f"title = {'[' * 10_000}", "expected tables and lists in at most 32 levels"),
    ("NUL", 'title = "Kimi-K2.5"', 'title = "\0"', "not TOML: illegal character"),
    ("reason in two lists", 'stop = ["stop",', 'stop = ["length",', "finish: 'length' stands in stop and length"),
]


@pytest.mark.parametrize(("old", "new", "says"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_a_fault_names_file_and_place(old: str, new: str, says: str) -> None:
    with pytest.raises(ContractError) as caught:
        parse_contract(changed(old, new), "my/kimi.toml")
    assert str(caught.value).startswith("my/kimi.toml: ")
    assert says in str(caught.value)


def test_all_faults_of_a_file_are_told_at_once() -> None:
    content = KIMI.replace('default_mode = "thinking"', 'default_mode = "deep"').replace(
        'end = "</think>"', 'end = "X"'
    )
    with pytest.raises(ContractError) as caught:
        parse_contract(content.encode(), "k.toml")
    assert [line.split(":")[1] for line in str(caught.value).splitlines()] == [" default_mode", " think.end"]


def test_tools_in_the_output_need_a_tools_table() -> None:
    start, end = KIMI.index("[tools]"), KIMI.index("# finish_reason")
    with pytest.raises(ContractError, match=r"k\.toml: modes\.\w+\.output: \{tools\} needs a \[tools\] table"):
        parse_contract((KIMI[:start] + KIMI[end:]).encode(), "k.toml")


def test_bytes_that_are_not_utf8() -> None:
    with pytest.raises(ContractError, match=r"^k\.toml: not"):
        parse_contract(KIMI.encode() + b'\n# \xff\n"', "k.toml")


# 163608 is no token of the vocabulary, 163605 is another one (its own line is moved out of the way).
@pytest.mark.parametrize("token_id", [163608, 163605])
def test_an_id_that_the_vocabulary_gives_another_token_is_refused_when_it_is_loaded(token_id: int) -> None:
    content = KIMI.replace('"<|media_pad|>" = 163605', '"<|media_pad|>" = 163837')
    contract = parse_contract(content.replace('"</think>" = 163607', f'"</think>" = {token_id}').encode(), "k.toml")
    with pytest.raises(ContractError, match=r"vocabulary splintr:kimi_k2: id of .*: expected \d+, found \d+"):
        load_vocabulary(contract)


@pytest.mark.parametrize(
    ("name", "model", "accepted"),
    [
        ("kimi-k2.5", "moonshotai/kimi-k2.5", True),
        ("kimi-k2.5", "moonshotai/kimi-k2.5-0127", True),
        ("kimi-k2.5", "moonshotai/Kimi-K2.5", True),
        ("kimi-k2.5", "MOONSHOTAI/KIMI-K2.5", True),
        ("kimi-k2.5", "moonshotai/kimi-k2", False),
        ("kimi-k2.5", "moonshotai/kimi-k2.6", False),
        ("kimi-k2.5", "moonshotai/kimi-k2.55", False),
        ("kimi-k2.5", "moonshotai/Kimi-K2-Instruct", False),
        ("kimi-k2.5", "evil/moonshotai/kimi-k2.5", False),
        ("kimi-k2.5", "", False),
        ("kimi-k2-instruct", "moonshotai/Kimi-K2-Instruct-0905", True),
        ("kimi-k2-instruct", "moonshotai/kimi-k2.5", False),
        ("gpt-oss", "openai/gpt-oss-120b", True),
        ("gpt-oss", "openai/gpt-4o", False),
    ],
)
def test_accepts_model(name: str, model: str, accepted: bool) -> None:
    assert read_contract(name).accepts_model(model) is accepted


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("stop", "stop"),
        (" STOP ", "stop"),
        ("eos", "stop"),
        ("length", "length"),
        ("MAX_TOKENS", "length"),
        ("tool_calls", "tool_calls"),
        ("content_filter", None),
        ("error", None),
        ("", None),
        (None, None),
    ],
)
def test_finish_reasons(kimi: Contract, reason: str | None, kind: str | None) -> None:
    assert kimi.finish.kind_of(reason) == kind


@pytest.mark.parametrize(
    ("call_id", "name", "matches"),
    [
        ("functions.find:0", "find", True),
        ("functions.find:12", None, True),
        ("functions.find:0", "get", False),
        ("functions.find:", "find", False),
        ("functions.find:-1", "find", False),
        ("find:0", "find", False),
        ("call_9f3a", None, False),
        (" functions.find:0", "find", False),
        ("functions.find:0\n", "find", False),
        ("functions.a:b:0", None, False),
    ],
)
def test_tool_ids(kimi: Contract, call_id: str, name: str | None, matches: bool) -> None:
    assert kimi.tools is not None
    assert kimi.tools.id_matches(call_id, name) is matches


def test_names_paths_and_folders(tmp_path: Path) -> None:
    (tmp_path / "kimi-k2.5.toml").write_bytes(changed('title = "Kimi-K2.5"', 'title = "mine"'))
    assert read_contract("kimi-k2.5", folder=tmp_path).title == "mine"
    assert read_contract("gpt-oss", folder=tmp_path).title == "gpt-oss"
    assert read_contract(str(tmp_path / "kimi-k2.5.toml")).title == "mine"
    for name in ("kimi", "./kimi-k2.5", str(tmp_path / "none.toml"), str(tmp_path / "kimi-k2.5.toml" / "x.toml")):
        with pytest.raises(ContractError, match=r"not found; expected one of deepseek-r1, deepseek-v3, .*kimi-k2\.5"):
            read_contract(name)
    with pytest.raises(ContractError, match="cannot be read"):
        read_contract(f"{tmp_path}/")


def test_a_file_in_the_own_folder_bears_the_name_that_it_is_called_by(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(KIMI, encoding="utf-8")
    with pytest.raises(
        ContractError, match=r"mine\.toml: name: expected 'mine', as the file is called, found 'kimi-k2\.5'"
    ):
        read_contract("mine", folder=tmp_path)
    assert read_contract(tmp_path / "mine.toml").name == "kimi-k2.5"


def test_a_link_that_leads_nowhere_is_no_reason_to_take_the_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "kimi-k2.5.toml").symlink_to("nowhere")
    with pytest.raises(ContractError, match=r"kimi-k2\.5\.toml: cannot be read: No such file"):
        read_contract("kimi-k2.5", folder=tmp_path)


def test_a_name_that_is_almost_right(tmp_path: Path) -> None:
    (tmp_path / "my-model.toml").write_text(KIMI, encoding="utf-8")
    for name, meant in (("kimi-k25", r"kimi-k2\.5"), ("my-modell", "my-model")):
        with pytest.raises(ContractError, match=rf"did you mean {meant}\?"):
            read_contract(name, folder=tmp_path)
    assert own_contracts(tmp_path) == ["my-model"]
    assert own_contracts(tmp_path / "none") == []


def test_unknown_mode(kimi: Contract) -> None:
    with pytest.raises(
        ConfigError, match=r"contract kimi-k2\.5: unknown mode 'deep'; expected one of: instant, thinking"
    ):
        kimi.mode("deep")
