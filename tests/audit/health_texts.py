"""Innocent texts of kinds that detectors like to take for faults, made from a seed."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Mapping

NAMES = ("alice", "bob", "carol", "dave", "eve", "mallory", "trent", "victor", "walter", "zoë")
_WORDS = (
    "the a of and to in is that for it with as on be at by this have from or one had not but what all were when we "
    "there can an your which their said if do will each about how up out them then she many some so these would other"
)
WORDS = _WORDS.split()


def markdown_table(draw: random.Random) -> str:
    head = "| name | city | score | passed |\n| --- | --- | --- | --- |\n"
    return head + "".join(
        f"| {draw.choice(NAMES)} | {draw.choice(WORDS)} | {draw.randrange(100)} | {draw.choice(('yes', 'no'))} |\n"
        for _ in range(60)
    )


def wide_table(draw: random.Random) -> str:
    columns = draw.randrange(8, 20)
    lines = ["|" + "|".join(f" c{i} " for i in range(columns)) + "|", "|" + "|".join([" --- "] * columns) + "|"]
    lines += ["|" + "|".join(f" {draw.randrange(1000)} " for _ in range(columns)) + "|" for _ in range(20)]
    return "\n".join(lines)


def json_array(draw: random.Random) -> str:
    rows = [
        {"id": i, "name": draw.choice(NAMES), "active": draw.random() < 0.5, "score": draw.randrange(10**4)}
        for i in range(80)
    ]
    return json.dumps(rows, indent=2)


def compact_json(draw: random.Random) -> str:
    return json.dumps(
        [{"x": draw.randrange(10), "y": draw.randrange(10), "label": draw.choice("ab")} for _ in range(150)]
    )


def base64_block(draw: random.Random) -> str:
    text = base64.b64encode(draw.randbytes(3_000)).decode()
    return "\n".join(text[i : i + 76] for i in range(0, len(text), 76))


def ascii_art(draw: random.Random) -> str:
    width = draw.randrange(30, 60)
    box = ["+" + "-" * width + "+", *["|" + " " * width + "|"] * 8, "+" + "=" * width + "+"]
    tree = [" " * (20 - i) + "*" * (2 * i + 1) for i in range(20)]
    return (
        "```\n" + "\n".join([*box, *tree, "~" * 70, "#" * 70]) + "\n```\nA box, and a tree of 20 rows.\n" + prose(draw)
    )


def number_list(draw: random.Random) -> str:
    return (
        ", ".join(str(n) for n in range(1, 400)) + "\n" + "\n".join(f"{i}. {draw.randrange(10**6)}" for i in range(100))
    )


def random_bits(draw: random.Random) -> str:
    return " ".join(draw.choice("01") for _ in range(300)) + "\n" + prose(draw)


def zero_matrix(draw: random.Random) -> str:
    row = "[" + ", ".join(["0"] * 8) + "]"
    return f"The identity has ones where this has zeros:\n\n[{', '.join([row] * 4)}]\n\n" + prose(draw) * 2


def nested_code(draw: random.Random) -> str:
    lines = ["class Table:"]
    for i in range(40):
        name = f"{draw.choice(WORDS)}_{i}"
        lines += [
            f"    def {name}(self, value: int) -> int:",
            f'        """Set {name}."""',
            f"        if value < {draw.randrange(100)}:",
            f'            raise ValueError("{name}")',
            f"        self._{name} = value",
            "        return value",
            "",
        ]
    return "```python\n" + "\n".join(lines) + "```\n"


def html_list(draw: random.Random) -> str:
    items = "\n".join(
        f'    <li class="item"><a href="/{draw.choice(NAMES)}/{i}">{draw.choice(WORDS)}</a></li>' for i in range(60)
    )
    return f"<ul>\n{items}\n</ul>\n"


def prose(draw: random.Random) -> str:
    sentences = (" ".join(draw.choice(WORDS) for _ in range(draw.randrange(6, 18))).capitalize() for _ in range(40))
    return ". ".join(sentences) + "."


def chinese(draw: random.Random) -> str:
    parts = (
        "首先",
        "我们需要",
        "考虑",
        "边界条件",
        "然后",
        "逐步",
        "推导",
        "得到",
        "结论",
        "因此",
        "答案",
        "这个函数",
        "返回",
    )
    return "。".join("".join(draw.choice(parts) for _ in range(draw.randrange(3, 9))) for _ in range(60)) + "。"


def checklist(draw: random.Random) -> str:
    return "\n".join(f"- [ ] {' '.join(draw.choice(WORDS) for _ in range(4))}" for _ in range(50))


def chorus(draw: random.Random) -> str:
    refrain = "Row, row, row your boat,\nGently down the stream,\nMerrily, merrily, merrily,\nLife is but a dream.\n\n"
    return "".join(refrain + prose(draw)[:300] + "\n\n" for _ in range(3))


def counting_song(draw: random.Random) -> str:
    return "".join(
        f"{n} green bottles hanging on the wall,\n{n} green bottles hanging on the wall,\n"
        f"And if one green bottle should accidentally fall,\nThere'll be {n - 1} green bottles hanging on the wall.\n\n"
        for n in range(10, 0, -1)
    )


def multiplication_table(draw: random.Random) -> str:
    return "\n".join(f"{a} × {b} = {a * b}" for a in range(1, 13) for b in range(1, 13))


def csv_rows(draw: random.Random) -> str:
    return "\n".join(
        f"2026-01-{i % 28 + 1:02},{draw.choice(NAMES)},{draw.randrange(100)},{draw.random():.2f},true"
        for i in range(120)
    )


def sql_inserts(draw: random.Random) -> str:
    return "\n".join(
        f"INSERT INTO users (id, name, score) VALUES ({i}, '{draw.choice(NAMES)}', {draw.randrange(100)});"
        for i in range(80)
    )


def hex_dump(draw: random.Random) -> str:
    return "\n".join(f"{16 * i:08x}  " + " ".join(f"{b:02x}" for b in draw.randbytes(16)) for i in range(60))


INNOCENT: Mapping[str, Callable[[random.Random], str]] = {
    make.__name__: make
    for make in (
        markdown_table, wide_table, json_array, compact_json, base64_block, ascii_art, number_list, random_bits,
        zero_matrix, nested_code, html_list, prose, chinese, checklist, chorus, counting_song, multiplication_table,
        csv_rows, sql_inserts, hex_dump,
    )
}  # fmt: skip
