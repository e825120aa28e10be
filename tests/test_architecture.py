"""The house: imports point one way, heavy libraries have one owner, and the documents say what the code does."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from toolkit import __version__
from toolkit import columns as table_columns

from .conftest import ROOT

TOOLKIT = ROOT / "toolkit"

# Lower numbers know nothing of higher ones. A package stands for all of its modules.
LAYERS = {
    "toolkit": 0,
    "toolkit.errors": 0,
    "toolkit.findings": 0,
    "toolkit.records": 1,
    "toolkit.columns": 1,
    "toolkit.wire": 2,
    "toolkit.endpoint": 2,
    "toolkit.toml": 2,
    "toolkit.store": 3,
    "toolkit.contract_faults": 3,
    "toolkit.contract": 4,
    "toolkit.phrases": 4,
    "toolkit.engines": 4,
    "toolkit.vocabulary_files": 4,
    "toolkit.vocabulary": 5,
    "toolkit.plain_prompts": 5,
    "toolkit.prompt": 6,
    "toolkit.parts": 6,
    "toolkit.assembly": 4,
    "toolkit.sampled": 6,
    "toolkit.rebuild": 7,
    "toolkit.rows": 8,
    "toolkit.gate": 7,
    "toolkit.import_lines": 10,
    "toolkit.importing": 11,
    "toolkit.prepared_files": 10,
    "toolkit.sealing": 9,
    "toolkit.discarding": 10,
    "toolkit.rebuilding": 10,
    "toolkit.config": 9,
    "toolkit.accounting": 11,
    "toolkit.changed": 9,
    "toolkit.audit": 10,
    "toolkit.generate": 10,
    "toolkit.generate.preflight": 11,
    "toolkit.inspection": 11,
    "toolkit.report": 10,
    "toolkit.report.html": 12,
    "toolkit.report.page": 12,
    "toolkit.report.tokens": 12,
    "toolkit.report.card": 12,
    "toolkit.report.index": 12,
    "toolkit.report.preflight": 12,
    "toolkit.report.standing": 12,
    "toolkit.simulate": 10,
    "toolkit.manifest": 11,
    "toolkit.mix": 3,
    "toolkit.masks": 5,
    "toolkit.split": 5,
    "toolkit.train_facts": 6,
    "toolkit.train_parts": 7,
    "toolkit.train_folder": 12,
    "toolkit.train_suite": 11,
    "toolkit.origins": 12,
    "toolkit.verifying": 12,
    "toolkit.schemas": 12,
    "toolkit.standing": 11,
    "toolkit.screening": 11,
    "toolkit.merge": 13,
    "toolkit.export": 13,
    "toolkit.cli": 14,
    "toolkit.__main__": 15,
}
# store.facts names files by the hashes of the contract and of the phrases.
EXCEPTIONS = {("toolkit.store.facts", "toolkit.contract"), ("toolkit.store.facts", "toolkit.phrases")}

OWNERS = {
    "aiohttp": {"toolkit.generate.client", "toolkit.simulate.server"},
    "great_expectations": {"toolkit.audit.gx"},
    "pandas": {"toolkit.audit.gx"},
    "jinja2": {"toolkit.report.html"},
    "renderers": {"toolkit.prompt"},
    "ray": {"toolkit.audit.on_ray"},
    "rensa": {"toolkit.audit.health.near"},
    "rich": {"toolkit.report.console", "toolkit.report.live", "toolkit.report.tokens"},
    "transformers": {"toolkit.vocabulary"},
    "tokenizers": {"toolkit.engines"},
    "splintr": {"toolkit.engines", "toolkit.vocabulary"},
    "fastokens": {"toolkit.engines"},
    "gigatoken": {"toolkit.engines"},
    "tiktoken": {"toolkit.engines"},
    "xxhash": {"toolkit.audit.onpolicy"},
    "typer": {"toolkit.cli"},
}


def modules() -> list[tuple[str, ast.Module]]:
    found = []
    for path in sorted(TOOLKIT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found.append((name, ast.parse(path.read_text(encoding="utf-8"))))
    return found


def imports_of(tree: ast.Module) -> set[str]:
    """Every module that is imported, also inside functions, but not for type checking alone."""
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    names = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, "imports are absolute"
            names |= {node.module}
    return names


def layer_of(module: str) -> int:
    name = module
    while name not in LAYERS:
        assert "." in name, f"{module} has no layer: add it to LAYERS"
        name = name.rpartition(".")[0]
    return LAYERS[name]


def package_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def test_imports_point_one_way() -> None:
    wrong = []
    for name, tree in modules():
        for imported in sorted(imports_of(tree)):
            if not imported.startswith("toolkit.") or package_of(imported) == package_of(name):
                continue
            if layer_of(imported) >= layer_of(name) and (name, package_of(imported)) not in EXCEPTIONS:
                wrong.append(f"{name} imports {imported}")
    assert not wrong


def test_heavy_libraries_have_one_owner() -> None:
    wrong = []
    for name, tree in modules():
        for imported in sorted(imports_of(tree)):
            owners = OWNERS.get(imported.partition(".")[0])
            if owners is not None and not any(name == o or name.startswith(f"{o}.") for o in owners):
                wrong.append(f"{name} imports {imported}")
    assert not wrong


def test_help_starts_fast_because_nothing_heavy_is_imported() -> None:
    code = "import sys, toolkit.cli; print(*sorted({m.partition('.')[0] for m in sys.modules} & set(sys.argv[1:])))"
    heavy = [*OWNERS, "polars", "pyarrow", "numpy", "msgspec", "orjson"]
    heavy.remove("typer")
    heavy.remove("rich")
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_help_says_what_the_tool_is_for() -> None:
    done = subprocess.run([sys.executable, "-m", "toolkit", "--help"], capture_output=True, text=True, check=True)
    assert "let nothing else through the merge" in " ".join(done.stdout.split())


@pytest.mark.parametrize("columns", ["SHARD_COLUMNS", "FACT_COLUMNS", "JUDGED_COLUMNS", "TRAIN_COLUMNS"])
def test_architecture_tables_are_the_schemas(columns: str) -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    match = re.search(rf"<!-- {columns} -->\n(.*?)\n<!-- end -->", text, re.DOTALL)
    assert match, f"ARCHITECTURE.md has no table {columns}"
    assert match[1].strip() == "\n".join(table_of(columns))


def table_of(columns: str) -> list[str]:
    lines = ["| column | type | null means | source |", "|---|---|---|---|"]
    for column in getattr(table_columns, columns):
        kind = str(column.type).replace("list<item: ", "list<").replace("list<element: ", "list<")
        lines.append(f"| {column.name} | {kind} | {column.null_means or '–'} | {column.source} |")
    return lines


def test_changelog_names_this_version() -> None:
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_no_module_is_longer_than_one_sitting() -> None:
    lengths = {p.relative_to(ROOT): p.read_text(encoding="utf-8").count("\n") for p in TOOLKIT.rglob("*.py")}
    assert {path: n for path, n in lengths.items() if n > 700} == {}


def test_everything_written_as_text_is_utf8_with_lf() -> None:
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in names:
        content = Path(ROOT / name).read_bytes()
        if name.endswith(".png"):
            assert content.startswith(b"\x89PNG"), name
            continue
        content.decode()
        assert b"\r" not in content, name
