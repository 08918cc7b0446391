"""The decision service: takes the one answer to each human task, from who may give it, and minds its time.

Owns the category `decision`. Promises that a decision is answered once, by a holder of its role who sees its run, while
the run is active; that whoever comes second hears who was first; that what nobody answers is reminded once and
escalated once; and that tasks which nobody waits for any more are withdrawn.
"""
