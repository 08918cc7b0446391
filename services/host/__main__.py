"""`python -m services.host`: the program `minutebook`, wherever its script may be."""

from minutebook.cli.main import main

main()
