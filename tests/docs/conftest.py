from .workspaces import shell, workspaces

__all__ = ["shell", "workspaces"]
