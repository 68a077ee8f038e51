"""How long a queue is without a promoter when its holder dies, and how many requests standing by costs."""
