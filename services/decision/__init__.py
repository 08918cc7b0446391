"""The decision service: takes the one answer to each human task, from who may give it.

Owns the category `decision`. Promises that a decision is answered once, by a holder of its role who sees its run, while
the run is active; that whoever comes second hears who was first; and that the tasks of a run that ended are withdrawn.
"""
