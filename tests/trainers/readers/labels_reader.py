"""What axolotl and LLaMA-Factory load a tokenized folder with, `datasets.load_from_disk`: `folder out.json`."""

import json
import sys
from pathlib import Path

from datasets import load_from_disk


def main(folder: str, out: str) -> None:
    dataset = load_from_disk(folder)
    found = {
        "columns": dataset.column_names,
        "features": {name: str(feature) for name, feature in dataset.features.items()},
        "rows": [[row["input_ids"], row["labels"], row["attention_mask"]] for row in dataset],
    }
    Path(out).write_text(json.dumps(found), encoding="utf-8")


main(*sys.argv[1:])
