"""The load generator behind ``seawall bench``.

- ``options``    what was asked for, from flags
- ``schedule``   when to send what: arrivals, lengths, deadlines; all before the first request
- ``texts``      the inputs
- ``retries``    what a client does about a failure
- ``client``     HTTP/1.1 over many connections, cheap enough to share two cores with the server
- ``target``     what the server says of itself, before and after each phase
- ``load``       the phases: open loop, closed loop
- ``figures``    from what happened to numbers
- ``report``     the report as types; ``table``, ``plot`` and ``progress`` show it
- ``run``        one benchmark from the first look to the report; ``command`` is the command line

Laws
- Open loop: every send time is fixed before the run, whatever the server does, and latency counts
  from that time. A generator that waits for answers before it sends again measures a server that
  is never overloaded.
- Nothing here knows the server but by HTTP.
- ``schedule``, ``texts``, ``retries``, ``figures``, ``report`` and ``table`` are pure: values in,
  values out, chance from a seeded generator that is an argument.
"""
