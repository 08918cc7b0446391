"""The planner owns the categories `definition` and `run`: it syncs definitions and decides what a run does next.

It is level-triggered: a message only says which run to look at. The run's next facts follow from its history, its
pinned definition and the state of its open attempts, decisions and effects, so a lost, doubled or late message
changes nothing but latency.
"""
