"""How long schedq's scripts keep everybody else waiting: `scripts/blocktime`."""
