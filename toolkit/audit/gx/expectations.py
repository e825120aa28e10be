"""Expectations of our own: for columns of lists, and for the types that polars has.

They are Great Expectations' classes like any other, and work in suites, checkpoints and Data Docs; the engine of polars
alone can answer them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Optional, Union

from great_expectations.compatibility import pydantic
from great_expectations.expectations.expectation import ColumnAggregateExpectation, ColumnMapExpectation
from great_expectations.render.components import LegacyRendererType, RenderedStringTemplateContent
from great_expectations.render.renderer.renderer import renderer

Number = Union[int, float]  # noqa: UP007
_BOUNDS = ("min_value", "max_value", "strict_min", "strict_max")


class _Told:
    """How an expectation is told in Data Docs: `words` with `$name` for each of its arguments."""

    words: ClassVar[str]

    @classmethod
    @renderer(renderer_type=LegacyRendererType.PRESCRIPTIVE)
    def _prescriptive_renderer(
        cls, configuration: Any = None, result: Any = None, runtime_configuration: Any = None, **_: Any
    ) -> list[RenderedStringTemplateContent]:
        asked = configuration or result.expectation_config
        how: Mapping[str, Any] = runtime_configuration or {}
        words = sentence(cls.words, asked.kwargs, with_column=how.get("include_column_name") is not False)
        template = {"template": words, "params": dict(asked.kwargs), "styling": how.get("styling")}
        return [RenderedStringTemplateContent(content_block_type="string_template", string_template=template)]

    @classmethod
    def _prescriptive_template(cls, renderer_configuration: Any) -> Any:
        renderer_configuration.template_str = sentence(
            cls.words, renderer_configuration.kwargs, with_column=renderer_configuration.include_column_name
        )
        return renderer_configuration


def sentence(words: str, kwargs: Mapping[str, Any], *, with_column: bool = True) -> str:
    """A sentence for Data Docs; bounds and `mostly` are put in as they are given."""
    bounds = []
    if kwargs.get("min_value") is not None:
        bounds.append(f"{'more than' if kwargs.get('strict_min') else 'at least'} $min_value")
    if kwargs.get("max_value") is not None:
        bounds.append(f"{'less than' if kwargs.get('strict_max') else 'at most'} $max_value")
    told = words.replace("$bounds", " and ".join(bounds) or "any number")
    mostly = kwargs.get("mostly")
    if isinstance(mostly, int | float) and mostly < 1:
        told += f", at least {mostly * 100:g} % of the time"
    return f"{'$column: ' if with_column else ''}{told}."


class _ListExpectation(_Told, ColumnMapExpectation):
    """What expectations of a column of lists share: a missing list is passed over, an empty one is judged."""


class _BoundedListExpectation(_ListExpectation):
    min_value: Optional[Number] = None  # noqa: UP045
    max_value: Optional[Number] = None  # noqa: UP045
    strict_min: bool = False
    strict_max: bool = False


class ExpectColumnListLengthsToBeBetween(_BoundedListExpectation):
    """Expect lists to have a number of elements between two bounds."""

    words: ClassVar[str] = "lists must have $bounds elements"
    map_metric: ClassVar[str] = "column_lists.length.between"
    success_keys: ClassVar[tuple[str, ...]] = (*_BOUNDS, "mostly")
    args_keys: ClassVar[tuple[str, ...]] = ("column", *_BOUNDS)


class ExpectColumnListElementCountsToBeBetween(_BoundedListExpectation):
    """Expect lists to hold one element a number of times between two bounds."""

    element: Any

    words: ClassVar[str] = "lists must hold $element $bounds times"
    map_metric: ClassVar[str] = "column_lists.element_count.between"
    success_keys: ClassVar[tuple[str, ...]] = (
        "element",
        "min_value",
        "max_value",
        "strict_min",
        "strict_max",
        "mostly",
    )
    args_keys: ClassVar[tuple[str, ...]] = ("column", "element", *_BOUNDS)


class ExpectColumnListFirstElementsToBeInSet(_ListExpectation):
    """Expect the first element of each list to be one of a set; an empty list has none."""

    value_set: list[Any]

    words: ClassVar[str] = "the first element of each list must be one of $value_set"
    map_metric: ClassVar[str] = "column_lists.first.in_set"
    success_keys: ClassVar[tuple[str, ...]] = ("value_set", "mostly")
    args_keys: ClassVar[tuple[str, ...]] = ("column", "value_set")


class ExpectColumnListLastElementsToBeInSet(_ListExpectation):
    """Expect the last element of each list to be one of a set; an empty list has none."""

    value_set: list[Any]

    words: ClassVar[str] = "the last element of each list must be one of $value_set"
    map_metric: ClassVar[str] = "column_lists.last.in_set"
    success_keys: ClassVar[tuple[str, ...]] = ("value_set", "mostly")
    args_keys: ClassVar[tuple[str, ...]] = ("column", "value_set")


class ExpectColumnListsToContain(_ListExpectation):
    """Expect each list to hold an element."""

    element: Any

    words: ClassVar[str] = "lists must hold $element"
    map_metric: ClassVar[str] = "column_lists.contain"
    success_keys: ClassVar[tuple[str, ...]] = ("element", "mostly")
    args_keys: ClassVar[tuple[str, ...]] = ("column", "element")


class ExpectColumnDtypeToBeInSet(_Told, ColumnAggregateExpectation):
    """Expect a column to be of one of some polars types, by their names: `Int64`, `String`, `List(Int32)`.

    `integer`, `float`, `number`, `text`, `list` and `moment` stand for all types of a kind.
    """

    dtype_set: list[str] = pydantic.Field(min_items=1)

    words: ClassVar[str] = "the type must be one of $dtype_set"
    metric_dependencies: ClassVar[tuple[str, ...]] = ("column.dtype",)
    success_keys: ClassVar[tuple[str, ...]] = ("dtype_set",)
    args_keys: ClassVar[tuple[str, ...]] = ("column", "dtype_set")

    def _validate(
        self, metrics: dict[str, Any], runtime_configuration: Any = None, execution_engine: Any = None
    ) -> dict[str, Any]:
        name, *kinds = metrics["column.dtype"]
        return {
            "success": any(wanted in (name, *kinds) for wanted in self.dtype_set),
            "result": {"observed_value": name},
        }
