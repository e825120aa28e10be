"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (name, kind, text) => {
    const made = document.createElement(name);
    if (kind) made.className = kind;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const store = document.getElementById("rows-data");
  const data = store ? JSON.parse(store.textContent) : { t: {}, s: [], r: [] };
  all(".needs-script").forEach((part) => { part.hidden = false; });

  // --- chips -----------------------------------------------------------------------------------
  const KINDS = ["text", "control", "bytes", "outside"];
  const SPACES = { " ": "\u00b7", "\n": "\u23ce", "\t": "\u21e5" };

  const spell = (into, text) => {
    for (const piece of text.split(/([ \n\t])/)) {
      if (SPACES[piece]) into.append(make("i", "ws", SPACES[piece]));
      else if (piece) into.append(piece);
    }
  };

  const chip = (id, at, spells, hue) => {
    const [text, kind] = data.t[id];
    const made = make("span", `chip ${KINDS[kind]} hue${hue}`);
    const word = make("b");
    if (text) spell(word, text); else word.append("\u2205");
    made.append(word, make("small", "", id));
    made.title = (at === null ? "" : `index ${at}, `) + `id ${id}` + (spells ? `, part of \u201c${spells}\u201d` : "");
    if (spells) made.append(make("em", "", `\u2282 ${spells}`));
    return made;
  };

  const gap = (count) => make("span", "gap", `\u2026 ${count.toLocaleString("en")} ids \u2026`);

  const strip = (row, part) => {
    const line = make("p", part ? "chips output" : "chips prompt");
    const marks = row.f.map((fault, number) => [fault, number + 1]).filter(([fault]) => fault[0] === part && fault[1] !== null);
    let next = 0;
    let total = 0;
    for (const [which, start, ids, spells, count] of row.w) {
      if (which !== part) continue;
      total = count;
      if (start > next) line.append(gap(start - next));
      ids.forEach((id, place) => {
        const at = start + place;
        const made = chip(id, at, spells[place], at % 4);
        const hits = marks.filter(([fault]) => at >= fault[1] && at < (fault[2] === null ? fault[1] + 1 : fault[2]));
        if (hits.length) {
          made.classList.add("fault");
          const begins = hits.filter(([fault]) => fault[1] === at).map(([, number]) => number);
          if (begins.length) made.append(make("strong", "", `\u25b2 ${begins.join(", ")}`));
        }
        line.append(made);
      });
      next = start + ids.length;
    }
    if (total > next) line.append(gap(total - next));
    const missing = marks.filter(([fault]) => fault[1] >= total).map(([, number]) => number);
    if (missing.length) {
      const made = make("span", "chip missing fault");
      made.append(make("b", "", "nothing"), make("small", "", "end"), make("strong", "", `\u25b2 ${missing.join(", ")}`));
      line.append(made);
    }
    return [line, total];
  };

  const faults = (row) => {
    const list = make("ol", "faults");
    for (const [part, at, , says, expected, found, instead] of row.f) {
      const item = make("li");
      item.append(make("span", "says", data.s[says]));
      if (at !== null) item.append(make("span", "soft", ` (${part ? "output" : "prompt"} id ${at.toLocaleString("en")})`));
      const pairs = make("dl");
      const pair = (name, value) => { if (value !== null) { const line = make("div"); line.append(make("dt", "", name), make("dd", "", data.s[value])); pairs.append(line); } };
      pair("expected", expected);
      pair("found", found);
      if (instead.length) {
        const line = make("div");
        const value = make("dd", "chips");
        instead.forEach((id, place) => value.append(chip(id, null, undefined, (at + place) % 4)));
        line.append(make("dt", "", "the text gives"), value);
        pairs.append(line);
      }
      item.append(pairs);
      list.append(item);
    }
    return list;
  };

  const draw = (sample) => {
    const row = data.r[Number(sample.id.slice(4))];
    const place = sample.querySelector(".tokens");
    if (!row || place.dataset.drawn) return;
    place.dataset.drawn = "1";
    const line = make("p", "tags");
    for (const reason of sample.dataset.reasons.split("\u23ce")) if (reason) line.append(make("span", "tag", reason));
    const command = make("span", "command");
    const button = make("button", "copy", "copy");
    button.type = "button";
    command.append(place.querySelector("code"), button);
    line.append(command);
    place.append(line, faults(row));
    const [prompt, prompts] = strip(row, 0);
    const [output, outputs] = strip(row, 1);
    const left = make("div", "ids");
    const mask = row.m ? "loss mask 1: trained on" : "loss mask would be 1, but the row is in quarantine: nothing is trained on";
    if (prompts) left.append(make("h4", "", `Prompt, ${prompts.toLocaleString("en")} ids (loss mask 0)`), prompt);
    left.append(make("h4", "", outputs ? `Output, ${outputs.toLocaleString("en")} ids (${mask})` : "Output: no ids"), output);
    const right = make("div", "reply");
    right.append(make("h4", "", "Raw reply, long texts clipped"));
    const raw = make("pre", "", row.b || "not kept");
    raw.tabIndex = 0;
    raw.setAttribute("role", "region");
    raw.setAttribute("aria-label", "raw reply");
    right.append(raw);
    const known = make("dl", "known");
    for (const [name, value] of row.h) {
      if (!value) continue;
      const line = make("div");
      line.append(make("dt", "", name), make("dd", "", value));
      known.append(line);
    }
    right.append(known);
    const both = make("div", "beside");
    both.append(left, right);
    place.append(both);
  };

  all("details.sample").forEach((row) => {
    row.addEventListener("toggle", () => { if (row.open) draw(row); });
  });
  const openTarget = () => {
    const row = /^#row-\d+$/.test(location.hash) ? document.getElementById(location.hash.slice(1)) : null;
    if (!row) return;
    row.hidden = false;
    row.open = true;
    row.querySelector("summary").focus();
    row.scrollIntoView();
  };
  addEventListener("hashchange", openTarget);

  // --- filters ---------------------------------------------------------------------------------
  const filter = (box) => {
    const words = box.querySelector("input[type=search]").value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = all("select", box).map((select) => [select.dataset.key, select.value]).filter(([, value]) => value);
    let shown = 0;
    const items = all(box.dataset.items);
    for (const item of items) {
      const text = item.textContent.toLowerCase();
      const fits = words.every((word) => text.includes(word)) &&
        wanted.every(([key, value]) => (item.dataset[key] || "").split("\u23ce").includes(value));
      item.hidden = !fits;
      shown += fits;
    }
    box.querySelector("output").textContent = shown === items.length ? `all ${shown} shown` : `${shown} of ${items.length} shown`;
  };
  all("form.filter").forEach((box) => {
    box.addEventListener("submit", (event) => event.preventDefault());
    box.addEventListener("input", () => filter(box));
    filter(box);
  });
  all("a[data-only]").forEach((link) => {
    link.addEventListener("click", () => {
      const box = document.getElementById("rows-filter");
      box.querySelector("input").value = "";
      all("select", box).forEach((select) => { select.value = select.dataset.key === "reasons" ? link.dataset.only : ""; });
      filter(box);
    });
  });

  // --- sorting ---------------------------------------------------------------------------------
  const valueOf = (line, column) => {
    const cell = line.cells[column];
    const number = cell.dataset.n;
    return number === undefined ? cell.textContent.trim().toLowerCase() : Number(number);
  };
  all("table.sortable").forEach((table) => {
    all("thead th", table).forEach((head, column) => {
      const button = head.querySelector("button");
      if (!button) return;
      button.disabled = false;
      button.addEventListener("click", () => {
        const was = head.getAttribute("aria-sort");
        const down = was ? (was === "ascending" ? "descending" : "ascending") : head.dataset.first || "ascending";
        all("thead th", table).forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down);
        const turn = down === "ascending" ? 1 : -1;
        const lines = [...table.tBodies[0].rows].map((line) => [valueOf(line, column), line]);
        lines.sort(([a], [b]) => (a < b ? -turn : a > b ? turn : 0));
        table.tBodies[0].append(...lines.map(([, line]) => line));
      });
    });
  });

  // --- commands --------------------------------------------------------------------------------
  const copyByHand = (text) => {
    const box = make("textarea", "", text);
    document.body.append(box);
    box.select();
    const done = document.execCommand("copy");
    box.remove();
    return done;
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    const text = button.parentElement.querySelector("code").textContent;
    let done = false;
    try { await navigator.clipboard.writeText(text); done = true; } catch { done = copyByHand(text); }
    button.textContent = done ? "copied" : "select it by hand";
    setTimeout(() => { button.textContent = "copy"; }, 2000);
  });

  openTarget();
})();
