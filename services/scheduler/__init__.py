"""The scheduler: turns due wakes into messages and finds what was committed and never published.

Owns no category yet. Promises that what is due is sent to its owner while any replica lives, and that several replicas
do no harm: one holds the lease and works, and whatever two of them send twice is gated by its owner.
"""
