"""SpecForge's own reader of prepared rows: `specforge.jsonl window min_supervised adjacent out.json`."""

import json
import sys
from pathlib import Path

from specforge.data.loss_mask import has_consecutive_supervised_tokens
from specforge.data.prompt_builder import prepare_prompt_tasks


def main(path: str, window: str, least: str, adjacent: str, out: str, mapping: str = "") -> None:
    tasks = prepare_prompt_tasks(
        path,
        None,
        chat_template=None,
        max_length=int(window),
        is_preformatted=False,
        train_only_last_turn=False,
        cache_dir=None,
        cache_key=None,
        num_proc=None,
        min_loss_tokens=int(least),
        loss_mask_filter=has_consecutive_supervised_tokens if adjacent == "1" else None,
    )
    found = {"rows": [[task["payload"]["input_ids"], task["payload"]["loss_mask"]] for task in tasks]}
    if mapping:
        import torch

        # As specforge.modeling.draft.base.load_vocab_mapping: by name, into buffers of these types.
        loaded = torch.load(mapping)
        d2t = torch.zeros(len(loaded["d2t"]), dtype=torch.int64)
        t2d = torch.zeros(len(loaded["t2d"]), dtype=torch.bool)
        d2t.copy_(loaded["d2t"])
        t2d.copy_(loaded["t2d"])
        found |= {"d2t": d2t.tolist(), "t2d": t2d.nonzero().flatten().tolist(), "target": len(t2d)}
    Path(out).write_text(json.dumps(found), encoding="utf-8")


main(*sys.argv[1:])
