"""The kinds of program that say what a run does next. Each shares the run, its children and its history."""
