"""What operators ask of a queue, and what they do to many jobs at once."""
