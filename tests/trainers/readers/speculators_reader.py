"""speculators' dataset, sampler and collator over an exported folder: `folder window out.json [draft size, target]`.

Hidden states would come from a server: zeros of the right shape stand in for them, through the transfer that the
dataset is given, so that every id and mask goes the way it goes in training.
"""

import argparse
import json
import sys
import warnings
from pathlib import Path

import torch
from speculators.train.cli import parse_vocab_mappings
from speculators.train.data import ArrowDataset, CollateFn
from speculators.train.distributed_batch_sampler import MultipackDistributedBatchSamplerV2
from speculators.train.vocab_mapping import build_vocab_mappings_from_distribution, save_token_frequency_distribution


class Zeros:
    """Hidden states for the ids of each row, all zero."""

    def __init__(self, data):
        self.data = data

    def get_cached(self, index):
        ids = self.data[index]["input_ids"]
        return {"token_ids": ids, "hidden_states": torch.zeros(len(ids), 4, 2)}


def main(folder: str, window: int, out: str, draft: int, target: int) -> None:
    dataset = ArrowDataset(max_len=window, datapath=folder)
    dataset.transfer = Zeros(dataset.data)
    rows = [dataset[index] for index in range(len(dataset))]
    found = {
        "types": sorted({str(row[name].dtype) for row in rows for name in ("input_ids", "loss_mask")}),
        "rows": [[row["input_ids"].tolist(), row["loss_mask"].tolist()] for row in rows],
        "lengths": [int(length) for length in dataset.approx_lengths],
    }
    collate = CollateFn(max_len=window, hidden_size=2, num_target_layers=3)
    packed = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = MultipackDistributedBatchSamplerV2(window, dataset.approx_lengths, num_replicas=1, rank=0)
    for batch in sampler:
        made = collate([dataset[int(index)] for index in batch])
        documents = made["document_ids"][0]
        for document, index in enumerate(batch):
            inside = documents == document
            packed.append([int(index), made["input_ids"][0][inside].tolist(), made["loss_mask"][0][inside].tolist()])
    found["packed"] = packed
    frequencies = torch.load(Path(folder) / "token_freq.pt", weights_only=True)
    own = Path(out).with_suffix(".pt")
    save_token_frequency_distribution(dataset.data, own)
    found["frequencies"] = sorted(frequencies.items())
    found["own_frequencies"] = sorted(torch.load(own, weights_only=True).items())
    if draft:
        options = argparse.Namespace(
            d2t_path=None, t2d_path=None, data_path=folder, draft_vocab_size=draft, token_freq_path=None
        )
        d2t, t2d, size = parse_vocab_mappings(options)
        own_d2t, own_t2d = build_vocab_mappings_from_distribution(frequencies, draft, target)
        found |= {
            "d2t": d2t.tolist(), "own_d2t": own_d2t.tolist(), "size": size,
            "t2d": t2d.nonzero().flatten().tolist(), "own_t2d": own_t2d.nonzero().flatten().tolist(),
        }  # fmt: skip
    Path(out).write_text(json.dumps(found), encoding="utf-8")


main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
