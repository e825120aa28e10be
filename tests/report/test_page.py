"""The page's rows: bounded whatever they hold, exact, and inert; blame, oddities and charts."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from toolkit.inspection.model import ChipKind, Part, Window
from toolkit.report.html import MOST_BYTES, render_html
from toolkit.report.page.blame import blame_of, wrongs_of
from toolkit.report.page.charts import Bar, columns, histogram, share_bar
from toolkit.report.page.odd import oddities_of
from toolkit.report.page.samples import data_of, line_of, shown_text

from .builder import HOSTILE, failing_verdict, learned, passing_verdict, provider, provider_line
from .test_html import Page, assert_inert
from .views import chip, distributions, group, hostile_view, inspection, stretch, view


def data_in(source: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Page(source).scripts[0])
    return found


def test_a_row_is_a_line_and_its_ids_are_data() -> None:
    source = render_html(failing_verdict(), inspection())
    text = " ".join(Page(source).text.split())
    assert "mc-00012 openrouter · Inceptron the special ids are numbered as by a tokenizer that closes gaps" in text
    assert "expected 163607 </think> , found 163604 <|media_end|>" in text.replace("</think>,", "</think> ,")
    assert "tokenproof show B3_magicoder mc-00012" in text
    data = data_in(source)
    (row,) = data["r"]
    assert row["w"][1] == [1, 10, [623, 198, 162, 163604, 163586], {"2": "漢"}, 40]
    assert data["t"]["623"] == [" The", 0]
    assert data["t"]["198"] == ["\n", 0]
    assert data["t"]["163586"] == ["<|im_end|>", 1]
    part, at, until, says, expected, found, instead = row["f"][0]
    assert (part, at, until, instead) == (1, 13, None, [163607])
    assert [data["s"][place] for place in (says, expected, found)] == [
        "the special ids are numbered as by a tokenizer that closes gaps", "163607 </think>", "163604 <|media_end|>",
    ]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_rows_are_shown_and_do_nothing(text: str) -> None:
    source = render_html(failing_verdict(), inspection(hostile_view(text), hostile_view(text, 1)))
    page = Page(source)
    assert_inert(page)
    data = json.loads(page.scripts[0])
    told = json.dumps(data, ensure_ascii=False)
    assert not set(told) & set("\x1b\x07\x9b\r\x00\u202e\u2066\u200b\ufeff\u2028\ud800\ufffe")
    assert source.encode()
    assert len(source.encode()) < MOST_BYTES


def test_two_hundred_rows_of_anything_stay_below_the_bound_and_the_rest_is_counted() -> None:
    draw = random.Random(5)
    chips = [
        chip(100_000 + n, draw.choice(("漢字字漢", " &<>\"'", "\u202e\ufeff", " word", "\n\n")) * 5)
        for n in range(9_000)
    ]
    views = [
        view(
            f"<&>{n}" * 40,
            windows=(Window(part=Part.OUTPUT, start=0, chips=tuple(chips[45 * n : 45 * n + 45])),),
            reply="\u202e" * 4_000,
        )
        for n in range(200)
    ]
    source = render_html(failing_verdict(), inspection(*views))
    assert len(source.encode()) < 400_000
    shown = source.count('<details class="sample"')
    assert 20 < shown < 200
    assert f"{200 - shown} more would not fit this page" in source
    assert len(data_in(source)["r"]) == shown


def test_rows_of_usual_size_all_fit() -> None:
    views = []
    for n in range(200):
        chips = tuple(chip((n * 7 + i) % 3_000, " word") for i in range(45))
        windows = (Window(part=Part.OUTPUT, start=0, chips=chips),)
        views.append(view(f"mc-{n:05}", windows=windows, reply='{"provider": "Inceptron"}' * 10))
    source = render_html(failing_verdict(), inspection(*views))
    assert source.count('<details class="sample"') == 200
    assert len(source.encode()) < 400_000


def test_without_rows_and_facts_the_page_says_why() -> None:
    found = replace(inspection(), views=(), distributions=None, left_off=("rows: shard part-00000.parquet is missing",))
    text = Page(render_html(failing_verdict(), found)).text
    assert "rows: shard part-00000.parquet is missing" in text
    assert "none to show" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" The", " The"),
        ("\n\t", "\n\t"),
        ("a\x1bb", "a␛b"),
        ("\u202e", "\\u202e"),
        ("x" * 40, "x" * 23 + "…" + "x" * 8),
        ("", ""),
    ],
)
def test_texts_of_chips_keep_their_white_space(text: str, shown: str) -> None:
    assert shown_text(text, 32) == shown


@pytest.mark.parametrize(
    ("sample_id", "command"),
    [
        ("q1", "tokenproof show B3 q1"),
        ("a b", "tokenproof show B3 'a b'"),
        ("-x", "tokenproof show B3 -- -x"),
        ("\x1b[2J", "tokenproof show B3 SAMPLE_ID"),
        ("'; rm -rf /", "tokenproof show B3 ''\"'\"'; rm -rf /'"),
    ],
)
def test_the_command_can_be_copied_as_it_is(sample_id: str, command: str) -> None:
    assert line_of(view(sample_id), 0, "B3").command == command


def test_a_later_turn_is_in_the_command() -> None:
    assert line_of(view("q", turn=2, sample_index=3), 0, "B3").command == "tokenproof show B3 --turn 2 --index 3 q"


def test_data_can_end_no_element() -> None:
    text = data_of([hostile_view("</script><!--&amp;\u2028")])
    assert not set(text) & set("<>&\u2028")


# --- whose fault it is ------------------------------------------------------------------------------


def test_the_guilty_one_is_named_with_its_part_of_the_bad_rows_and_since_when() -> None:
    verdict = failing_verdict(providers=(provider(None, rows=100), provider("Inceptron", rows=100, quarantined=40)))
    blame = blame_of(verdict, oddities_of(verdict), distributions(), [view()])
    assert blame.headline == "openrouter · Inceptron: 100 % of the bad rows, though only 50.0 % of all rows"
    assert [(s.name, s.bad, s.rows, s.guilty) for s in blame.suspects] == [("openrouter · Inceptron", 40, 100, True)]
    assert blame.since == "the bad rows begin around row 100 of shards/part-00000.parquet, 50 % into the dataset"
    assert blame.others == "1 other source or provider: none of 100 rows"
    assert blame.causes == (("the special ids are numbered as by a tokenizer that closes gaps", 1, 0),)


def test_where_all_are_concerned_nobody_is_accused() -> None:
    groups = tuple(group(name, closing=10) for name in ("A", "B", "C", "D"))
    verdict = failing_verdict(
        providers=tuple(provider(name, rows=100, quarantined=10) for name in ("A", "B", "C", "D"))
    )
    blame = blame_of(verdict, {}, distributions(groups=groups, slices=()), [])
    assert blame.headline.startswith("no source or provider stands out: the bad rows come from 4 of 4")
    assert blame.suspects == ()
    assert blame.since is None


def test_a_few_bad_rows_late_in_a_dataset_are_no_change() -> None:
    slices = tuple(stretch(closing=3 if at == 5 else 0) for at in range(8))
    verdict = failing_verdict(providers=(provider(None, rows=100), provider("Inceptron", rows=100, quarantined=3)))
    assert blame_of(verdict, {}, distributions(slices=slices), []).since is None


def test_what_closes_the_gate_is_told_in_words_the_largest_share_first() -> None:
    wrongs = wrongs_of(failing_verdict())
    assert [wrong.id for wrong in wrongs] == ["evidence_known", "reencode_equal"]
    assert wrongs[1].says == "Another engine makes other ids of the row's text"
    assert wrongs[1].figures == "41 of 3,383 rows, 1.2 %; must hold for 99.9 %"


def test_who_stands_out_and_by_what() -> None:
    lines = (provider_line(None), provider_line("Chutes", ks_distance=0.6, ks_p=1e-9, median_ratio=0.5))
    odd = oddities_of(failing_verdict(learned=replace(learned(), providers=lines)))
    assert [one.measure for one in odd["openrouter", "Chutes"]] == ["alters text", "changes", "lengths"]
    assert "shorter, 0.50 times the others' median" in odd["openrouter", "Chutes"][2].says
    assert [one.measure for one in odd["openrouter", "Inceptron"]] == ["quarantine", "evidence", "counting", "prompt"]
    assert ("sglang", None) not in odd


def test_a_clean_dataset_accuses_nobody() -> None:
    verdict = passing_verdict(providers=(provider(None), provider("Chutes")))
    assert oddities_of(verdict) == {}
    page = Page(render_html(verdict, inspection(view(reasons=())))).text
    assert "Whose fault" not in page
    assert "stands out" not in page


# --- charts -----------------------------------------------------------------------------------------


def test_the_tallest_bar_fills_its_chart_and_an_empty_one_is_not_drawn() -> None:
    assert 'd="M0 100V0H500V100z"' in histogram((10, 0), "x").replace("M4 ", "M0 ").replace("H496", "H500")
    assert columns([Bar(height=0.0, title="nothing")], "x").count("<path") == 0


def test_what_a_chart_says_is_escaped() -> None:
    drawn = columns([Bar(height=1, title="<script>")], '"><script>')
    assert "<script" not in drawn
    assert "&lt;script&gt;" in drawn


def test_a_share_of_a_hundredth_can_be_seen_and_nothing_is_nothing() -> None:
    assert 'class="odd" width="100"' in share_bar(0.01, 0.05, "1 %", bad=True)
    assert 'class="odd"' not in share_bar(0.0, 0.05, "0 %", bad=True)
    assert 'class="mark" x="223.6"' in share_bar(0.01, 0.05, "1 %", bad=True)


def test_a_chip_of_each_kind_bears_its_number() -> None:
    kinds = [chip(n, "x", kind) for n, kind in enumerate(ChipKind)]
    data = json.loads(data_of([view(windows=(Window(part=Part.OUTPUT, start=0, chips=tuple(kinds)),))]))
    assert [data["t"][str(n)][1] for n in range(4)] == [0, 1, 2, 3]
