"""Notices: people are told of what waits for them or went wrong, by the channels that their tenant group declared.

Owns the category `notice`. A fact raises one notice per channel and person, under an id made of both, so that a message
that is repeated raises nothing twice; a notice is announced in the history before it is sent.
"""
