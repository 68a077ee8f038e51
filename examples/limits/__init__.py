"""Limits in five small programs: rates, fair turns, order, debounce, and a provider that refuses.

From the folder `examples`, with a Redis on localhost or `export REDIS_URL=embedded://data`:

    pip install 'schedq[embedded]' pytest
    python -m pytest limits
    python -m limits
    schedq worker --burst limits.calls:queue limits.customers:queue limits.imports:queue limits.search:queue \
        limits.provider:queue

- `calls.py`: an API client with two rates.
- `customers.py`: fair shares between customers.
- `imports.py`: one import at a time per account, in order.
- `search.py`: a document that is edited often is indexed once.
- `provider.py`: a provider that refuses with 429 and says when to come back.

`__main__.py` enqueues some jobs of each. Tests on virtual time: `test_limits.py`.
"""
