"""The append-only history, its head rows and what stands beside them: blobs, ready rows, deliveries, leases.

One statement per batch gates, gives birth, guards, queues, writes and leaves an outbox row. Two adapters keep the
same port: `postgres`, the real one, and `memory`, for tests and simulation.
"""
