"""Workflows and batches in eight small programs: waits of days, people, agents, nights, many files, and what follows.

From the folder `examples`, with a Redis on localhost or `export REDIS_URL=embedded://data`:

    pip install 'schedq[embedded]' pytest
    python -m pytest workflows
    export SECONDS_PER_DAY=0.2
    schedq worker workflows.worker:queue &
    python -m workflows

- `orders.py`: an order waits for the warehouse; if it is not packed or is cancelled, its steps are undone.
- `expenses.py`: a manager approves, or the next one is asked.
- `agent.py`: a model calls tools in parallel; its provider refuses with 429.
- `signup.py`: four letters in thirty days.
- `etl.py`: ten thousand files and a total, as a batch.
- `album.py`: a Celery chord and a chain, migrated.
- `nightly.py`: every night two extracts, then a model, and a clean-up whatever happens, declared as a flow.
- `ladder.py`: a season of videos, each a flow of its own, with a race of two machines for its picture.

`queues.py` has their queue and the length of a day, `worker.py` imports all of them for a worker. `__main__.py` starts
one run of each, sends the messages that they wait for, and prints their results. Tests on virtual time:
`test_workflows.py`.
"""
