"""The page in a real browser: from a file, with the network off, by mouse and keyboard, light and dark, on paper."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from toolkit.report.html import render_html

from .axe import axe_source
from .builder import HOSTILE, failing_verdict, hostile_verdict, incomplete_verdict, learned, passing_verdict
from .chromium import Browser, browse
from .views import hostile_view, inspection, view

SHOWN = "document.querySelectorAll('details.sample:not([hidden])').length"
Steps = Callable[[Browser], Awaitable[Any]]


def whole_page() -> str:
    views = [
        view(),
        view("mc-00077", provider="Chutes", reasons=("reencode_equal",), faults=()),
        view("mc-01841", turn=1, source="sglang", provider=None, reasons=("evidence_known",)),
    ]
    found = inspection(*views)
    return render_html(failing_verdict(learned=learned()), found, passing_verdict())


def on(tmp_path: Path, source: str, steps: Steps) -> Any:
    """Steps on a page; it makes no error and asks for nothing but itself."""
    path = tmp_path / "index.html"
    path.write_text(source, encoding="utf-8")

    async def opened(browser: Browser) -> Any:
        await browser.size(1000)
        await browser.open(path)
        result = await steps(browser)
        assert browser.problems == []
        assert set(browser.requests) == {path.resolve().as_uri()}
        return result

    return browse(opened)


def test_rows_are_opened_filtered_and_found_by_their_anchor(tmp_path: Path) -> None:
    async def steps(browser: Browser) -> None:
        assert await browser.run(SHOWN) == 3
        assert await browser.run("document.querySelectorAll('.tokens .chip').length") == 0
        await browser.run("document.querySelector('#row-0 summary').click()")
        await browser.run("new Promise(done => setTimeout(done, 50))")
        chips = await browser.run("[...document.querySelectorAll('#row-0 .output .chip')].map(c => c.innerText)")
        assert [re.sub(r"\s+", " ", chip) for chip in chips] == [
            "·The 623", "⏎ 198", "\\xe6 162 ⊂ 漢", "<|media_end|> 163604 ▲ 1", "<|im_end|> 163586",
        ]  # fmt: skip
        text = await browser.run("document.querySelector('#row-0').innerText")
        for expected in ("Output, 40 ids", "loss mask would be 1", "… 10 ids …", "… 25 ids …", "the text gives",
                         "output id 13", "tokenproof show B3_magicoder mc-00012", "completion_tokens 39"):  # fmt: skip
            assert expected in text
        await browser.run("document.querySelector('a[data-only=evidence_known]').click()")
        assert await browser.run(SHOWN) == 2
        assert await browser.run("document.querySelector('#rows-filter output').textContent") == "2 of 3 shown"
        await browser.run(
            "(() => { const box = document.querySelector('#rows-filter input'); box.value = 'sglang';"
            "box.dispatchEvent(new Event('input', { bubbles: true })); })()"
        )
        assert await browser.run(SHOWN) == 1
        await browser.run("location.hash = '#row-1'")
        await browser.run("new Promise(done => setTimeout(done, 50))")
        assert await browser.run("document.querySelector('#row-1').open && !document.querySelector('#row-1').hidden")

    on(tmp_path, whole_page(), steps)


def test_tables_are_sorted_by_their_numbers_and_say_so(tmp_path: Path) -> None:
    column = "[...document.querySelectorAll('#suite-1 tbody tr')].map(r => Number(r.cells[2].dataset.n))"

    async def steps(browser: Browser) -> None:
        await browser.run("document.querySelectorAll('#suite-1 thead button')[2].click()")
        falling = await browser.run(column)
        assert falling == sorted(falling, reverse=True)
        assert len(set(falling)) > 2
        sort = "document.querySelectorAll('#suite-1 thead th')[2].getAttribute('aria-sort')"
        assert await browser.run(sort) == "descending"
        await browser.run("document.querySelectorAll('#suite-1 thead button')[2].click()")
        assert await browser.run(column) == sorted(falling)
        assert await browser.run(sort) == "ascending"

    on(tmp_path, whole_page(), steps)


def test_a_keyboard_reaches_and_opens_a_row(tmp_path: Path) -> None:
    async def steps(browser: Browser) -> None:
        await browser.run("document.querySelector('#row-0 summary').focus()")
        await browser.press("Enter", 13, "\r")
        await browser.run("new Promise(done => setTimeout(done, 50))")
        assert await browser.run("document.querySelector('#row-0').open")
        await browser.press("Tab", 9)
        assert await browser.run("document.activeElement.className") == "copy"

    on(tmp_path, whole_page(), steps)


def test_it_is_light_and_dark_and_printed_without_its_controls(tmp_path: Path) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"

    async def steps(browser: Browser) -> None:
        await browser.media("light")
        light = await browser.run(colour)
        await browser.media("dark")
        assert await browser.run(colour) != light
        await browser.media("light", "print")
        assert await browser.run("getComputedStyle(document.querySelector('#rows-filter')).display") == "none"
        assert (await browser.pdf()).startswith(b"%PDF-")

    on(tmp_path, whole_page(), steps)


@pytest.mark.parametrize("width", [400, 1000, 1600])
def test_nothing_is_wider_than_the_window(tmp_path: Path, width: int) -> None:
    async def steps(browser: Browser) -> None:
        await browser.size(width)
        await browser.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        await browser.run("new Promise(done => setTimeout(done, 50))")
        assert await browser.run("document.documentElement.scrollWidth") <= width

    on(tmp_path, whole_page(), steps)


@pytest.mark.slow
@pytest.mark.parametrize("source", [whole_page(), render_html(incomplete_verdict())], ids=["closed", "incomplete"])
def test_axe_finds_no_serious_fault_in_light_or_dark(tmp_path: Path, source: str) -> None:
    script = axe_source()

    async def steps(browser: Browser) -> list[str]:
        await browser.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        await browser.run("new Promise(done => setTimeout(done, 50))")
        await browser.run(script + "; 0")
        faults = []
        for scheme, rules in (("light", "{}"), ("dark", "{ runOnly: ['color-contrast'] }")):
            await browser.media(scheme)
            found = json.loads(await browser.run(f"axe.run({rules}).then(f => JSON.stringify(f))"))
            assert found["passes"]
            faults += [
                f"{scheme}: {one['id']} ({one['impact']}): {node['html'][:120]} {node['failureSummary'][:200]}"
                for one in found["violations"]
                if one["impact"] in ("serious", "critical")
                for node in one["nodes"][:3]
            ]
        return faults

    assert on(tmp_path, source, steps) == []


def test_hostile_rows_run_nothing_and_leave_the_page_whole(tmp_path: Path) -> None:
    views = [hostile_view(text, number) for number, text in enumerate(HOSTILE)]
    source = render_html(hostile_verdict(HOSTILE[1]), inspection(*views))

    async def steps(browser: Browser) -> None:
        await browser.run("window.alert = () => { throw new Error('ran'); }")
        await browser.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        await browser.run("new Promise(done => setTimeout(done, 100))")
        assert await browser.run("document.images.length + document.scripts.length") == 2
        assert await browser.run("document.querySelectorAll('.tokens .chip').length") >= 3 * len(HOSTILE)
        assert await browser.run("[...document.links].every(a => a.getAttribute('href').startsWith('#'))")

    on(tmp_path, source, steps)
