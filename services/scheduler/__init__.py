"""The scheduler: turns due wakes into messages and finds what was committed and never published.

Owns the categories `schedule`, the lines of definitions' schedules and their slots, and `admission`, who may work under
a concurrency key. Promises that what is due is sent to its owner while any replica lives, and that several replicas do
no harm: one holds the lease and works, and whatever two of them send or decide twice is gated by its stream.
"""
