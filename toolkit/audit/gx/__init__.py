"""Great Expectations on polars: `import toolkit.audit.gx`, and every context has `data_sources.add_polars`.

::

    import toolkit.audit.gx
    import great_expectations as gx

    context = gx.get_context()
    source = context.data_sources.add_polars("responses")
    batch = source.add_parquet_asset("facts", path="facts/*.parquet").add_batch_definition_whole("all")

Importing this package imports Great Expectations, which takes seconds, and switches its analytics off. A context that
is kept in files must be opened after the import, or it does not know what a polars data source is. `engine`
holds the execution engine, `passing` the one query that answers a suite; `build` and `evaluate` are
our audit's way to it.
"""

import os
import warnings

os.environ["GX_ANALYTICS_ENABLED"] = "False"
with warnings.catch_warnings():
    # Great Expectations warns about its own imports.
    warnings.simplefilter("ignore")
    from toolkit.audit.gx import aggregate_metrics, expectations, list_metrics, row_metrics
    from toolkit.audit.gx.datasource import LazyFrameAsset, ParquetAsset, PolarsDatasource
    from toolkit.audit.gx.engine import PolarsExecutionEngine

__all__ = [
    "LazyFrameAsset",
    "ParquetAsset",
    "PolarsDatasource",
    "PolarsExecutionEngine",
    "aggregate_metrics",
    "expectations",
    "list_metrics",
    "row_metrics",
]
