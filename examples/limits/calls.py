"""An API client with two rates: the provider allows 5 requests a second and 60 an hour, whoever makes them."""

from __future__ import annotations

from schedq import Queue, Rate

queue = Queue("calls")
api = queue.gate("weather-api", concurrency=3, rate=[Rate(5, per=1), Rate(60, per=3600, burst=20)])


@queue.task(gate=api)
def fetch(city: str) -> None:
    """Get the weather now. Stands for a request to the provider."""
    print(f"weather of {city}")


@queue.task(gate=api)
def forecast(city: str, days: int) -> None:
    """Get a forecast. It shares the limits with `fetch`."""
    print(f"forecast of {city} for {days} days")
