"""The `cavity` command."""

from cavity.cli.app import app, main

__all__ = ["app", "main"]
