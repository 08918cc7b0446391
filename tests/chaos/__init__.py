"""Force: real processes and servers, killed while they work; the target's own record is the judge.

`ground` is what a fleet stands on (servers, target, model, people), `fleet` keeps the services' processes up, `forked`
is one of them; `people` deliver stories and answer, `faults` strike, `storm` and `write_path` are the two trials, and
`judge` reads the record and the target afterwards.
"""
