"""The page on writing a contract: its example is a contract, proves itself, and works from reply to evidence."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from tests.audit.shard_rows import SHA, body, entry, table
from tests.conftest import ROOT
from toolkit.audit.evidence import judge
from toolkit.audit.measure import measure
from toolkit.contract import Contract, Mode, VocabularySpec, parse_contract, read_contract, shipped_contracts
from toolkit.engines import rank_lines
from toolkit.errors import ContractError
from toolkit.records import Reply
from toolkit.rows import RowBuilder
from toolkit.vocabulary import load_vocabulary, proof_of

PAGE = (ROOT / "docs" / "contracts.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def example() -> str:
    (found,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def test_the_example_is_proved(example: str, tmp_path: Path) -> None:
    (tmp_path / "phi-4.toml").write_text(example, encoding="utf-8")
    lines = list(proof_of(read_contract("phi-4", folder=tmp_path)).lines)
    assert [line for line in lines if not line.holds] == []
    assert len(lines) > 30


def test_the_example_from_the_files_of_a_repository(example: str, tmp_path: Path) -> None:
    contract = parse_contract(example.encode(), "phi-4.toml")
    (tmp_path / "tiktoken.model").write_bytes(rank_lines(load_vocabulary(contract).base))
    decoder = ", ".join(f'"{i}": {{"content": "{s}"}}' for s, i in contract.special.items())
    (tmp_path / "tokenizer_config.json").write_text(f'{{"added_tokens_decoder": {{{decoder}}}}}', encoding="utf-8")
    assert all(line.holds for line in proof_of(contract, f"folder:{tmp_path}").lines)


def test_one_digit_of_an_id_changed(example: str) -> None:
    contract = parse_contract(example.replace('"<|im_end|>" = 100265', '"<|im_end|>" = 100275').encode(), "phi-4.toml")
    with pytest.raises(ContractError, match=r"id of <\|im_end\|> in the .* table: expected 100275, found"):
        load_vocabulary(contract)


def test_an_answer_under_the_example(example: str) -> None:
    contract = parse_contract(example.encode(), "phi-4.toml")
    vocabulary = load_vocabulary(contract)
    builder = RowBuilder(contract, vocabulary)
    ids = [*vocabulary.encode_ordinary(" Yes."), 100265]
    answer = body({"content": " Yes."}, usage={"completion_tokens": len(ids)}, model="microsoft/phi-4")
    asked = entry(answer, contract="phi-4", mode="instant", model="microsoft/phi-4")
    reply = builder.read(asked, where="here")
    assert isinstance(reply, Reply)
    made = builder.build(asked, reply)
    assert made["output_ids"] == ids
    frame = pl.from_arrow(measure(table([made]), contract, vocabulary, shard_sha256=SHA))
    assert isinstance(frame, pl.DataFrame)
    (facts,) = judge(frame, contract).facts.to_dicts()
    assert (facts["structure"], facts["text_equal"], facts["evidence"]) == (None, True, "counted")


def test_the_page_names_every_field_and_every_shipped_contract() -> None:
    fields = {*Contract.__struct_fields__, *Mode.__struct_fields__, *VocabularySpec.__struct_fields__}
    told = fields - {"name", "title", "default_mode", "sha256", "path", "source", "modes", "vocabulary", "special"}
    assert {field for field in told if field not in PAGE} == set()
    titles = " ".join(read_contract(name).title for name in shipped_contracts())
    assert len(shipped_contracts()) == 10
    assert {
        word for word in ("Kimi-K2.5", "Qwen3", "GLM", "DeepSeek", "gpt-oss", "Llama") if word not in titles
    } == set()
