"""The decision service: takes the one answer to each human task, or the votes for it, and minds its time.

Owns the category `decision`. Promises that a decision is answered once, by who may answer it and sees its run, while
the run is active; that whoever comes second hears who was first; that a quorum's voters are those that were named when
it was opened, each of whom votes once on what is shown; that what nobody answers is reminded once and escalated once;
and that tasks which nobody waits for any more are withdrawn.
"""
