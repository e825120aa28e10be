"""The data source: `context.data_sources.add_polars(…)`, with assets of Parquet files and of frames in memory."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Union

import polars as pl
from great_expectations.compatibility import pydantic
from great_expectations.core.batch import LegacyBatchDefinition
from great_expectations.datasource.fluent.batch_identifier_util import make_batch_identifier
from great_expectations.datasource.fluent.batch_request import BatchRequest
from great_expectations.datasource.fluent.interfaces import Batch, DataAsset, Datasource, TestConnectionError
from great_expectations.exceptions.exceptions import BuildBatchRequestError, InvalidBatchRequestError

from toolkit.audit.gx.engine import LazyFrameSpec, ParquetSpec, PolarsExecutionEngine


class _PolarsAsset(DataAsset):  # type: ignore[type-arg]
    """What both kinds of assets share: a batch is the whole asset."""

    _parameters: ClassVar[tuple[str, ...]] = ()

    def test_connection(self) -> None:
        """Nothing to test."""

    def get_batch_parameters_keys(self, partitioner: object = None) -> tuple[str, ...]:
        """Names of what a batch must be asked for with."""
        return self._parameters

    def build_batch_request(
        self, options: dict[str, Any] | None = None, batch_slice: object = None, partitioner: object = None
    ) -> BatchRequest[Any]:
        """A request for the whole asset.

        Raises:
            BuildBatchRequestError: Other options are given than the asset has, or a part of it is asked for.
        """
        given = dict(options or {})
        if batch_slice is not None or partitioner is not None:
            raise BuildBatchRequestError(message="a polars asset is one batch: no slice and no partitioner")
        if set(given) != set(self._parameters):
            wanted = ", ".join(self._parameters) or "none"
            raise BuildBatchRequestError(
                message=f"expected batch parameters {wanted}, found {', '.join(given) or 'none'}"
            )
        return BatchRequest(datasource_name=self.datasource.name, data_asset_name=self.name, options=given)

    def _validate_batch_request(self, batch_request: BatchRequest[Any]) -> None:
        if (batch_request.datasource_name, batch_request.data_asset_name) != (self.datasource.name, self.name):
            raise InvalidBatchRequestError(
                f"expected a request for {self.datasource.name}/{self.name}, "
                f"found {batch_request.datasource_name}/{batch_request.data_asset_name}"
            )

    def get_batch_identifiers_list(self, batch_request: BatchRequest[Any]) -> list[dict[Any, Any]]:
        """One entry: there is one batch."""
        return [make_batch_identifier(batch_request.options)]

    @abstractmethod
    def _spec_of(self, batch_request: BatchRequest[Any]) -> Any:
        """What the engine reads the batch from."""

    def get_batch(self, batch_request: BatchRequest[Any]) -> Batch:
        """The batch; its rows are not read yet."""
        self._validate_batch_request(batch_request)
        spec = self._spec_of(batch_request)
        engine = self.datasource.get_execution_engine()
        data, markers = engine.get_batch_data_and_markers(spec)
        engine.tables[self.name] = data.frame
        definition = LegacyBatchDefinition(
            datasource_name=self.datasource.name,
            data_connector_name="fluent",
            data_asset_name=self.name,
            batch_identifiers=make_batch_identifier(batch_request.options),
            batch_spec_passthrough=None,
        )
        metadata = self._get_batch_metadata_from_batch_request(batch_request, ignore_options=("dataframe",))
        return Batch(
            datasource=self.datasource,
            data_asset=self,
            batch_request=batch_request,
            data=data,
            metadata=metadata,
            batch_markers=markers,
            batch_spec=spec,
            batch_definition=definition,
        )

    def add_batch_definition_whole(self, name: str) -> Any:
        """A batch definition of the whole asset."""
        return self.add_batch_definition(name=name, partitioner=None)


class ParquetAsset(_PolarsAsset):
    """Parquet files: a path, a glob, or an address that polars can scan.

    Attributes:
        path: As `polars.scan_parquet` takes it. The order of rows is that of the scan.
        reader_options: Further keywords of `polars.scan_parquet`.
    """

    type: Literal["parquet"] = "parquet"
    path: Union[str, list[str]]  # noqa: UP007
    reader_options: dict[str, Any] = pydantic.Field(default_factory=dict)

    def test_connection(self) -> None:
        """Read the schema.

        Raises:
            TestConnectionError: The files cannot be read as Parquet.
        """
        try:
            pl.scan_parquet(self.path, **self.reader_options).collect_schema()
        except (pl.exceptions.PolarsError, OSError, TypeError, ValueError) as error:
            raise TestConnectionError(f"cannot read {self.path}: {error}") from error

    def _spec_of(self, batch_request: BatchRequest[Any]) -> ParquetSpec:
        return ParquetSpec(path=self.path, reader_options=dict(self.reader_options))


class LazyFrameAsset(_PolarsAsset):
    """A frame that is given with each run: `batch_parameters={"dataframe": frame}`, lazy or not."""

    type: Literal["lazyframe"] = "lazyframe"
    _parameters: ClassVar[tuple[str, ...]] = ("dataframe",)

    def build_batch_request(
        self, options: dict[str, Any] | None = None, batch_slice: object = None, partitioner: object = None
    ) -> BatchRequest[Any]:
        """A request for a frame.

        Raises:
            BuildBatchRequestError: `dataframe` is missing, or no frame of polars.
        """
        frame = (options or {}).get("dataframe")
        if not isinstance(frame, pl.LazyFrame | pl.DataFrame):
            raise BuildBatchRequestError(
                message=f"expected a polars LazyFrame or DataFrame as 'dataframe', found {type(frame).__name__}"
            )
        return super().build_batch_request(options, batch_slice, partitioner)

    def _spec_of(self, batch_request: BatchRequest[Any]) -> LazyFrameSpec:
        return LazyFrameSpec.of(batch_request.options["dataframe"].lazy())


class PolarsDatasource(Datasource):  # type: ignore[type-arg]
    """Data for polars. Great Expectations learns of it when this module is imported."""

    asset_types: ClassVar[Sequence[Any]] = [ParquetAsset, LazyFrameAsset]
    type: Literal["polars"] = "polars"
    assets: list[Union[ParquetAsset, LazyFrameAsset]] = []  # noqa: RUF012, UP007

    @property
    def execution_engine_type(self) -> Any:
        """The engine that runs expectations on its batches."""
        return PolarsExecutionEngine

    def get_execution_engine(self) -> PolarsExecutionEngine:
        """The engine; it knows the Parquet assets by name, for expectations about another table."""
        engine: PolarsExecutionEngine = super().get_execution_engine()
        for asset in self.assets:
            if isinstance(asset, ParquetAsset) and asset.name not in engine.tables:
                engine.tables[asset.name] = pl.scan_parquet(asset.path, **asset.reader_options)
        return engine

    def test_connection(self, test_assets: bool = True) -> None:
        """Test the assets.

        Raises:
            TestConnectionError: One cannot be read.
        """
        for asset in self.assets if test_assets else []:
            asset.test_connection()
