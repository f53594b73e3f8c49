"""The Grafana dashboard of Seawall, described once in Python.

``seawall`` is the description, ``grafana`` turns it into the JSON that Grafana reads, ``readme``
into the table for people; ``python -m dashboards`` writes both. A tool of the repository: it needs
nothing but Python and is no part of the installed package.
"""
