"""The runner owns the category `attempt`: it claims queued attempts, executes them and reports what came of them.

PostgreSQL alone holds leases; messages only say that there is something to claim. Every report carries its claim and
is refused once another claim is current, so a runner that wakes up late writes nothing. A runner that dies loses its
leases, and others take over; the third lost lease fails the attempt as `connector_unavailable`.
"""
