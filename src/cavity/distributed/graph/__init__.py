"""Parts of one large discrete graph on many workers."""
