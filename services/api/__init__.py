"""The one door for people and programs. Owns `identity`: tenant groups, tenants, users, keys and projects.

It authenticates, shows what the caller may see, and asks the owner over the bus for everything else. It holds no
run logic. Without the bus it still answers reads and accepts webhooks.
"""
