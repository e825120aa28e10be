"""Great Expectations is imported here, by the package that silences the warnings of its own imports."""

import toolkit.audit.gx  # noqa: F401
