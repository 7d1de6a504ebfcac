"""`python -m perilune`."""

from perilune.cli.main import main

main()
