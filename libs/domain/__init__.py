"""The pure heart: one module per aggregate with its state, `decide` and `evolve`. No I/O, no clock, no ids, no logs.

`decide(command, state, now)` returns what follows from a command, as `Decided`; nothing when it is already true.
`evolve(state, event)` is total and judges nothing. `now` is the database's clock, read by the query that loaded
the state.
"""
