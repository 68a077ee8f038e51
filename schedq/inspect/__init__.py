"""What operators need: questions about a queue, and actions on many jobs at once."""
