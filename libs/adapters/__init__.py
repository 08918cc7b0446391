"""Webhook source adapters: a vendor's body → the event that triggers and waits match. Pure.

`normalise` reads one delivery; `verify_signature` says whether it came from who knows the secret.
"""

from libs.adapters.normalised import Normalised
from libs.adapters.normalising import normalise
from libs.adapters.signature import verify_signature

__all__ = ["Normalised", "normalise", "verify_signature"]
