"""The file format: a .npz file (a zip of .npy members), one member of which is a header in JSON.

The header, UTF-8 text stored as an array of bytes under the name `__cavity__`, is

    {"format": "cavity", "version": 1, "kind": ..., "library": ..., "arrays": [names], "header": {...}}

Plain `numpy.load` opens the file too. Nothing in it is ever executed: no pickles, no object arrays, no names that are
looked up.
"""

#: the value of "format" in every header.
FORMAT = "cavity"
#: the version that is written.
VERSION = 1
#: the versions that are read.
READABLE = (1,)
#: the member that holds the header.
HEADER = "__cavity__"
#: kinds of NumPy arrays that are stored: booleans, numbers, bytes and text of fixed width.
ARRAY_KINDS = "biufcSU"


class StorageError(ValueError):
    """A file cannot be read or written as asked; the message names it and says why."""
