r"""What the simulated model says: sentences for reasoning, and blocks for content, by topic.

`$a`, `$b`, `$sum`, `$product`, `$city` and `$name` are filled in per answer. The texts hold what makes tokenizers
and servers differ: leading and doubled spaces, tabs, CRLF, long numbers, Han, Hangul, combining accents, emoji with
joiners. None of them spells a special token.
"""

from __future__ import annotations

from string import Template

from toolkit.simulate.draws import Draws

CITIES = ("Florence", "Kyoto", "Nairobi", "Valparaíso", "Tromsø", "Hanoi", "Québec", "Łódź")
NAMES = ("Amara", "Jonas", "Mei", "Rafael", "Ingrid", "Tomáš", "Priya", "Zoë")

REASONING: dict[str, tuple[str, ...]] = {
    "any": (
        "The user wants a direct answer, so I should keep the preamble short.",
        "Let me look at what is really being asked before I start writing.",
        "There are two readings of this; the plain one is more likely.",
        "Wait, I should double-check that. Yes, it holds.",
        "I'll structure the reply as:\n- the short answer\n- why it is so\n- one thing to watch out for",
        'Hmm, "$name" might expect an example, so I\'ll add one.',
        "A list would be overkill here. Two paragraphs should do.",
        "I could mention the history, but it doesn't help with the question.",
    ),
    "code": (
        "The function has to handle the empty input first, otherwise `items[0]` raises.",
        "Complexity: one pass, so O(n) time and O(1) extra memory.",
        "Edge cases: n = 0, n = $a, and a negative index.\n\nI'd rather raise ValueError than return None.",
        "Let me trace it with n = $a:  first step gives $b, second step gives $sum.",
    ),
    "maths": (
        "First, $a + $b = $sum, and $a × $b = $product.",
        "Let \\(x = $a\\). Then \\(x^2 - $b x\\) factors, which settles it.",
        "Check: $product / $a = $b. Good.",
        "The sign matters: −$a is not the same as $a here.",
    ),
    "chinese": (
        "用户用中文提问，所以我也用中文回答。",
        "先说结论，再解释原因，最后举一个例子。",
        "这里有$a个要点，其中第$b个容易被忽略。",
    ),
    "emoji": (
        "An emoji or two fits the tone 🙂, but not in every line.",
        "They asked for something playful: 🎈 for the title, 🧑‍🚀 for the hero.",
    ),
    "tool": (
        "I have a function for exactly this, so I should call it instead of guessing.",
        "The required parameters can be taken from the question.",
        "No need to ask back; the request names $city clearly enough.",
    ),
    "result": (
        "The function has returned, so I can answer now.",
        "The result looks plausible. I'll state it and add what it means in practice.",
    ),
}

CONTENT: dict[str, tuple[str, ...]] = {
    "any": (
        "In short: yes, as long as both sides agree on the order in which things happen.",
        (
            "Here is the idea in one sentence. Everything that is written once can be read many times, "
            "and everything else is bookkeeping."
        ),
        "1. Start with the smallest case that can fail.\n2. Make it fail.\n3. Only then change something.",
        "| step | cost |\n|---|---:|\n| read | $a |\n| sort | $b |\n| **total** | **$sum** |",
        '> "It works" is a claim about one run;  "it holds" is a claim about all of them.',
        "That said, $name's version is easier to keep: it names what it does, and it does nothing else.",
        "The old quay in $city was rebuilt twice — once after the storm, once after the budget.",
        "Let me know if you want the longer version.",
    ),
    "code": (
        (
            "```python\ndef running_total(values: list[int]) -> list[int]:\n    total = 0\n    out = []\n"
            "    for value in values:\n        total += value\n        out.append(total)\n    return out\n```"
        ),
        (
            "```go\nfunc clamp(n, low, high int) int {\n\tif n < low {\n\t\treturn low\n\t}\n"
            "\tif n > high {\n\t\treturn high\n\t}\n\treturn n\n}\n```"
        ),
        (
            "```sql\nSELECT city, COUNT(*) AS n\n  FROM visits\n WHERE visited_at >= '2026-01-01'\n"
            " GROUP BY city\nHAVING COUNT(*) > $a;\n```"
        ),
        "Call it with `running_total([$a, $b])` and you get `[$a, $sum]`.",
        "Note the `<=`: with `<` the last element is skipped, which is the usual off-by-one.",
        "On Windows the file ends like this:\r\n\r\nkey=$a\r\nvalue=$b\r\n",
    ),
    "maths": (
        "\\[ $a \\cdot $b = $product \\]",
        "So the sum is **$sum**, and the product is **$product**.",
        "For \\(n \\ge 1\\) we have \\(\\sum_{k=1}^{n} k = \\tfrac{n(n+1)}{2}\\); with \\(n = $a\\) the claim follows.",
        "Numerically: 3.14159265358979, 2.718281828459045 and 1.4142135623730951, so $a is well inside the bound.",
        "∀ε > 0 ∃δ > 0: |x − $a| < δ ⇒ |f(x) − $b| < ε. ∎",
    ),
    "chinese": (
        "简单来说，答案是$sum。",
        "可以分三步理解：\n\n一、先看已知条件；\n二、再找两者之间的关系；\n三、最后验证结果是否合理。",
        "春江潮水连着夜色，$city的灯火一点一点亮起来。",
        "注意：全角标点（，。！？）和半角标点 (,.!?) 在这里是不同的字符。",
        "谢谢你的问题！如果需要更详细的解释，请告诉我。",
    ),
    "emoji": (
        "🎉 Done! Here is the plan: 🧭 → 🛶 → 🏕️ → 🔥",
        "👩‍💻 writes, 👨‍👩‍👧 reads, and 🏳️‍🌈 flies over the café. 안녕하세요!",
        "Rating: ★★★★☆ ($a/5 would be too much 😅)",
        "Zoe\u0308 and Zoë are spelled with different code points, yet they look alike 👀",
    ),
    "tool": (
        "Let me look that up.",
        "I'll check that for you. ",
        "One moment, I'm asking the service.",
    ),
    "result": (
        "Here is what came back: **$a**, which is about what one would expect in $city.",
        "The lookup worked. In short, the value is $sum (it was $b before).",
        "According to the result, everything is in order ✅",
    ),
}


def fill(text: str, draws: Draws) -> str:
    """`text` with its `$…` places filled from `draws`."""
    a, b = draws.between(2, 400), draws.between(2, 90)
    return Template(text).substitute(
        a=a, b=b, sum=a + b, product=a * b, city=draws.pick(CITIES), name=draws.pick(NAMES)
    )


def topic_of(text: str) -> str:
    """The topic that a question seems to be about."""
    lowered = text.lower()
    if any("\u4e00" <= c <= "\u9fff" for c in text):
        return "chinese"
    if any("\U0001f300" <= c <= "\U0001faff" for c in text) or "emoji" in lowered:
        return "emoji"
    if any(word in lowered for word in ("code", "function", "python", "sql", "rust", "regex", "bug", "script", "```")):
        return "code"
    if any(word in lowered for word in ("prove", "integral", "equation", "sum ", "how many", "probability", "solve")):
        return "maths"
    return "any"
