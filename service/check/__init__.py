"""``seawall check``: what would be served, at what cost and with which limits, before anybody asks.

``words`` says it, ``trial`` has one real worker load the model and hears what it found.
"""
