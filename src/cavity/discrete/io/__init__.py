"""Network files and texts, read and written."""

# Nothing here is public.
__all__: list[str] = []
