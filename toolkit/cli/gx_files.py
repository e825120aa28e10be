"""`--gx-json` and `--gx-docs`: what Great Expectations itself says of an audit, written when the verdict is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from toolkit.audit.gx.evaluate import Evaluation
    from toolkit.records import Json

GxJson = Annotated[
    Path | None,
    typer.Option(
        "--gx-json",
        metavar="FILE",
        help="Also write Great Expectations' own results: a JSON list, one document for each suite.",
    ),
]
GxDocs = Annotated[
    Path | None,
    typer.Option(
        "--gx-docs",
        metavar="FOLDER",
        help="Also write Great Expectations' Data Docs, a static site. Its pages load styles and scripts from CDNs; "
        "the report in reports/ needs no net.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class GxFiles:
    """Where Great Expectations' own results go, and those that were collected so far."""

    json: Path | None
    docs: Path | None
    documents: list[Mapping[str, Json]] = field(default_factory=list)

    def clear(self) -> None:
        """Remove what an earlier audit wrote: nobody shall go by it if this one comes to no end.

        Raises:
            StoreError: it cannot be removed, or the folder holds something else.
        """
        if self.json is not None or self.docs is not None:
            from toolkit.store.published import remove_file, remove_site

            if self.docs is not None:
                remove_site(self.docs)
            if self.json is not None:
                remove_file(self.json)

    def keep(self, dataset: str, evaluations: Sequence[Evaluation]) -> None:
        """Keep the results of one dataset, one for each suite."""
        if self.json is None and self.docs is None:
            return
        from toolkit.audit.gx.publish import document

        self.documents.extend(document(evaluation, dataset) for evaluation in evaluations)

    def write(self) -> None:
        """Write all that was kept.

        Raises:
            StoreError: a file or the folder cannot be written.
        """
        if self.json is not None:
            from toolkit.store.published import write_documents

            write_documents(self.json, self.documents)
        if self.docs is not None:
            from toolkit.audit.gx.publish import build_docs
            from toolkit.store.published import write_site

            write_site(self.docs, lambda folder: build_docs(folder, self.documents))
