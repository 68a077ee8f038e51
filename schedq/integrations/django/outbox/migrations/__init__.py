"""The changes of the table, release by release."""
