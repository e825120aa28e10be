#!/bin/sh
# The tests of the polars engine with the oldest Great Expectations that is supported, in an environment of its own.
set -eu
cd "$(dirname "$0")/.."
oldest=$(sed -n 's/.*"great-expectations>=\([0-9.]*\),.*/\1/p' pyproject.toml)
case $oldest in *.*.*) ;; *) oldest="$oldest.0" ;; esac
folder=${GX_OLDEST_ENV:-.venv-gx-oldest}
if [ ! -x "$folder/bin/python" ]; then
    "${PYTHON:-python3}" -m venv "$folder"
fi
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
    "great-expectations==$oldest" "hypothesis>=6.100" "jsonschema-rs>=0.40" "msgspec>=0.19" "orjson>=3.10" \
    "polars>=2.1" "pyarrow>=21" "pytest>=8.3"
"$folder/bin/python" - "$oldest" <<'PYTHON'
import sys
from importlib.metadata import version

found = version("great-expectations")
sys.exit(0 if found == sys.argv[1] else f"expected great-expectations {sys.argv[1]}, found {found}")
PYTHON
echo "great-expectations $oldest"
# Its contexts leave temporary folders to the interpreter, which warns: that is not ours to test.
exec "$folder/bin/python" -m pytest -q -p no:cacheprovider -o addopts="" -o filterwarnings=ignore -m "not slow" \
    tests/audit/gx/test_engine.py tests/audit/gx/test_parity.py tests/audit/gx/test_publish.py \
    tests/audit/gx/test_types.py
