"""How good weighted draws are, and where to draw them: plain NumPy on draws and log weights."""

# Nothing here is public.
__all__: list[str] = []
