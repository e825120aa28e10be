"""Sites and folders that take the place of earlier ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolkit.errors import StoreError
from toolkit.store.published import write_site


def test_an_earlier_site_comes_back_if_its_name_is_not_to_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "docs"
    write_site(folder, lambda site: (site / "index.html").write_text("first") and None)
    rename = Path.rename

    def refused(path: Path, target: Path) -> Path:
        if path.name == "site":
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(StoreError, match="docs: cannot be written: No space left"):
        write_site(folder, lambda site: (site / "index.html").write_text("second") and None)
    assert (folder / "index.html").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["docs"]
