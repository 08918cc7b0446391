"""The definition language: load, check, variants, expressions, interpolation, matching, cron, content hash. Pure.

A `definitions/` folder comes in as a mapping of paths to text; what comes out is a `Folder` of checked values or
every problem at once. Nothing here reads a file, a clock or the environment, but for the data of the time zones.
"""
