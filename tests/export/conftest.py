from tests.flow.workspace import run

__all__ = ["run"]
