"""TRL's SFTTrainer over an exported folder, up to the batches of its collator: `folder window out.json`."""

import json
import sys
import tempfile
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from datasets import load_from_disk


def main(folder: str, window: str, out: str) -> None:
    dataset = load_from_disk(folder)
    words = Tokenizer(WordLevel({"<pad>": 0, "<eos>": 1, "<unk>": 2}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")
    config = LlamaConfig(
        vocab_size=163_840,
        hidden_size=2,
        intermediate_size=2,
        num_hidden_layers=1,
        num_attention_heads=1,
        pad_token_id=0,
    )
    with tempfile.TemporaryDirectory() as scratch:
        arguments = SFTConfig(
            output_dir=scratch, max_length=int(window), per_device_train_batch_size=3, report_to=[], use_cpu=True,
            bf16=False, shuffle_dataset=False, dataloader_num_workers=0, disable_tqdm=True,
        )  # fmt: skip
        trainer = SFTTrainer(
            model=LlamaForCausalLM(config), args=arguments, train_dataset=dataset, processing_class=tokenizer
        )
        prepared = trainer.train_dataset
        batches = []
        for start in range(0, len(prepared), 3):
            batch = trainer.data_collator([prepared[i] for i in range(start, min(start + 3, len(prepared)))])
            for ids, labels, attended in zip(batch["input_ids"], batch["labels"], batch["attention_mask"], strict=True):
                inside = attended.to(torch.bool)
                batches.append([ids[inside].tolist(), labels[inside].tolist()])
    Path(out).write_text(json.dumps({"rows": batches, "columns": prepared.column_names}), encoding="utf-8")


main(*sys.argv[1:])
