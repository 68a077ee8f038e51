"""How long schedq's scripts block Redis for other clients: `scripts/blocktime`."""
