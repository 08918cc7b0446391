"""Settings and secrets. Every limit has a number, a name and a setting."""

from libs.config.secrets import Secrets
from libs.config.settings import Settings

__all__ = ["Secrets", "Settings"]
