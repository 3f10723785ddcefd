"""The one loop and what is plugged into it."""
