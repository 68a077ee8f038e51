"""Every interleaving of a few actors on a real server, with crashes and lost replies, held against the laws.

    actors      what takes part: the engine's own operations, in the order in which workers and people send them
    scenarios   who meets whom, and on what
    world       one queue on a real server: do a step, look at everything, go back to an earlier state
    ledger      what has been answered so far, and what may never be answered after it
    search      depth first through all schedules
    bugs        the engine with one thing broken, which the search must notice

A step is one round trip. Between any two of them anybody else may act, an actor may die, or a reply may get lost.
"""
