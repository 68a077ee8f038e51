"""An order service: FastAPI takes orders, SQLAlchemy keeps them, schedq charges and confirms them.

From the folder `examples`, with a Redis on localhost or `export REDIS_URL=embedded://data`:

    pip install 'schedq[embedded]' fastapi uvicorn sqlalchemy
    schedq worker orders.tasks:queue &
    uvicorn orders.api:app
    curl -H 'X-Tenant: acme' -H 'X-Request-ID: demo-1' -H 'Content-Type: application/json' \
        -d '{"customer": "ada@example.org", "amount": "19.90"}' http://127.0.0.1:8000/orders
    curl -H 'X-Tenant: acme' http://127.0.0.1:8000/orders/1

Read `database.py` first (the transaction that a request or an attempt has), then `context.py` (the headers that travel
from the request into its jobs), `tasks.py` and `api.py`. `test_orders.py` tests all of it.
"""
