"""The development stack: every service in one process, with its own PostgreSQL and nats-server beside it.

Owns no events. Promises that the laptop runs the same code as a cluster, on real servers, and that nothing it
started outlives it. Here only may everything be imported; nobody imports this package.
"""
