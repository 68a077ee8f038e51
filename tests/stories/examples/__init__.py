"""The programs under examples/, run as users run them."""
