"""The core decides: admit? which batch? what after a failure? open? restart?

Laws (checked by import-linter and ``tests/contract``): standard-library value tools only; no
asyncio, time, random, threading, logging or os; every method that needs the time takes ``now``
in seconds of one monotonic clock.
"""
