"""The `cavity` command."""

from cavity._cli.app import app, main

__all__ = ["app", "main"]
