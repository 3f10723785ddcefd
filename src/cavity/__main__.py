"""`python -m cavity`: the command."""

from cavity.cli import main

main()
