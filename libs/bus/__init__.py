"""The bus: envelopes on JetStream, asks on core NATS. A doorbell; the truth is in the history.

Adapters: `jetstream` (FastStream and nats-py) and `memory`. `microbatch` turns single messages into batches.
"""
