"""The ingest service: records each webhook delivery once and gives birth to the runs that it starts.

Owns the category `inbound`. Promises that a delivery which the door accepted is recorded, whatever is lost on the way;
that each matching definition starts one run of it; and that what is not started is recorded with the reason.
"""
