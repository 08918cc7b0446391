"""Minutebook for programs: the public models, a client of the HTTP API and the command line.

This package is published by itself and imports nothing else of the product.
"""
