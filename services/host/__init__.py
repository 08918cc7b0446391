"""How services run for real: each alone or several together, as a process that says how it is and drains when told.

Owns no events. Knows every service by name and none by heart: a process imports what it serves and nothing else.
"""
