"""The ingest service: records each event once, hands it to the runs that wait for it, and starts those that it starts.

Owns the categories `inbound` and `wait`. Promises that a delivery which the door accepted is recorded, whatever is lost
on the way; that an event which comes before, while or after a wait opens is given to it exactly once; that each
matching definition starts one run of it; and that what does not follow is recorded with the reason.
"""
