"""What the processes tell about themselves: `logs` (structlog) and `tracing` (OpenTelemetry).

Names are an interface. Payloads, prompts and secrets never pass through here.
"""
