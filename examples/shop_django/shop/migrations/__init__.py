"""The changes of the shop's tables."""
