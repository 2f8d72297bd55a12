"""`python -m tallytree` is the command."""

from tallytree.command.main import main

main()
