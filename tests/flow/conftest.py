from .workspace import run

__all__ = ["run"]
