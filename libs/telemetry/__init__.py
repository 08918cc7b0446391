"""What the processes tell about themselves: `logs` (structlog), `tracing` (OpenTelemetry), `metrics` (Prometheus).

Names are an interface. Payloads, prompts and secrets never pass through here.
"""
