"""What `cavity demo` shows."""

from cavity.cli.demos.show import DEMOS

__all__ = ["DEMOS"]
