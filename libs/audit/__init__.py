"""Proof of the record to somebody who does not trust its keeper: seals, checks, replays and bundles to take away.

Owns the tables `seals` and `seal_leaves`. Reads everything, changes nothing else.
"""
