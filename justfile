# `just` lists the recipes. Every recipe uses the virtual environment of this checkout.

venv := ".venv/bin"

default:
    @just --list

# Make the virtual environment, with the versions that were tested together
setup:
    python3 -m venv .venv
    {{venv}}/pip install --quiet --constraint constraints.txt --editable '.[test]'

# Run the whole product on this machine until it is stopped
dev *OPTIONS:
    {{venv}}/minutebook dev {{OPTIONS}}

# Take a story from a webhook to a pull request
demo *OPTIONS:
    {{venv}}/minutebook demo {{OPTIONS}}

# Run every test
test *OPTIONS:
    {{venv}}/pytest {{OPTIONS}}

# Kill, cut and fill for minutes, of which `just test` has the short ones. `just force --outage 60` takes its time
force *OPTIONS:
    {{venv}}/pytest -m force {{OPTIONS}}

# Play seeds of the simulation: the whole system in one thread, with faults
sim SEEDS="1000" *OPTIONS:
    {{venv}}/python -m tests.simulation --seeds {{SEEDS}} {{OPTIONS}}

# Take each guard of the design away in turn, and see that the simulation misses it
sim-teeth SEEDS="200":
    {{venv}}/python -m tests.simulation --teeth --seeds {{SEEDS}}

# Kill everything that can be killed while runs are under way, then count at the target
chaos *OPTIONS:
    {{venv}}/python -m tests.chaos {{OPTIONS}}

# Take each guard of the design out of a copy of the sources, and see its test fail
guards *WORDS:
    {{venv}}/python -m tests.guards {{WORDS}}

# What can be checked without a server, in under a minute
check:
    {{venv}}/ruff check .
    {{venv}}/ruff format --check .
    {{venv}}/mypy
    {{venv}}/lint-imports
    {{venv}}/pytest tests/unit tests/properties tests/contracts tests/architecture

# Measure the product: `just bench --quick`, `just bench --only S1,S2 --out FILE.json`
bench *OPTIONS:
    {{venv}}/python -m tests.bench {{OPTIONS}}

# Show where one run's time goes, hop by hop
profile *OPTIONS:
    {{venv}}/python -m tests.bench.profile {{OPTIONS}}

# Format the code
fmt:
    {{venv}}/ruff check --fix .
    {{venv}}/ruff format .

# Write the versions that are installed now into constraints.txt
pin:
    {{venv}}/pip freeze --exclude-editable > constraints.txt

# Write the reference of settings
docs:
    {{venv}}/minutebook serve --settings > docs/configuration.md
