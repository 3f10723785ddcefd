"""How good weighted draws are, and where to draw them: plain NumPy on draws and log weights."""
