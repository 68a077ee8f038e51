"""The programs under examples/, run as people run them."""
