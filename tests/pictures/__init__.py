"""The pictures of the papers, each made by a command: ``python -m tests.pictures``.

They show real servers: nothing on them is drawn by hand or made up.
"""
