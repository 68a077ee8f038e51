"""How long a queue has no promoter after its holder dies, and how many requests the standbys send."""
