"""The effects service: the only one that writes to the outside world, one tool call per effect, through a ledger.

Owns the categories `effect` and, in `services.effects.notices`, `notice`. Promises that an effect is announced in the
history before its call is made, that no call is made twice for it unless it surely was not sent, and that what may have
been done and cannot be known is in doubt.
"""
