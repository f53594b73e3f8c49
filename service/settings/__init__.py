"""Every setting, once: ``model`` holds the table, ``sources`` reads it from where people write it.

``values`` and ``address`` say what a value may be, ``advice`` what is legal but unwise.
"""

from __future__ import annotations

from service.settings.address import Address
from service.settings.model import Settings
from service.settings.sources import Loaded, SettingsError, help_text, load, load_settings
from service.settings.together import is_open
from service.settings.values import LATENCY_BOUNDS_MS

__all__ = [
    "LATENCY_BOUNDS_MS",
    "Address",
    "Loaded",
    "Settings",
    "SettingsError",
    "help_text",
    "is_open",
    "load",
    "load_settings",
]
