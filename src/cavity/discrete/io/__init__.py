"""Network files and texts, read and written."""
