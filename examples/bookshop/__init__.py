"""A bookshop: FastAPI takes orders, an outbox enqueues their jobs, schedq runs them. The handbook's page on FastAPI.

From the folder `examples`, with a Redis on localhost or `export REDIS_URL=embedded://data`:

    pip install 'schedq[embedded,sqlalchemy]' fastapi uvicorn httpx2 pytest
    python -m pytest bookshop
    schedq worker bookshop.tasks:queue &
    uvicorn bookshop.api:app
    curl -H 'Content-Type: application/json' -d '{"customer": "ada@example.org"}' http://127.0.0.1:8000/orders
    curl http://127.0.0.1:8000/orders/1
"""
