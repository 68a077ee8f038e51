"""Every interleaving of a few actors on a real server, with crashes and lost replies, checked against the laws.

    actors      the participants: the engine's own operations, in the order in which workers and operators send them
    scenarios   which actors take part, and in what situation
    world       queues on a real server: execute a step, read everything, return to an earlier state
    ledger      the replies so far, and which replies are no longer allowed
    recovery    those who stay alive at the end, with whom everything must finish
    search      depth-first search through all schedules
    bugs        the engine with one bug injected, which the search must detect

A step is one round trip. Between any two steps any other actor may act, an actor may die, or a reply may be lost.
"""
