"""A small Django site whose tasks run on schedq."""
