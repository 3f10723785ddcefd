"""`python -m cavity`: the command."""

from cavity._cli import main

main()
