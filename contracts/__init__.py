"""The language between the services: events, commands, replies, subjects and errors. No behaviour.

Every message that crosses a service's border is a frozen pydantic model of this package, every
event type and version is in `contracts.registry`, every subject, stream and durable in
`contracts.subjects`.
"""
