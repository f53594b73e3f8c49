"""Properties are tried with the same examples in every run: a red test stays red."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("seawall", derandomize=True, deadline=None, database=None)
settings.load_profile("seawall")
