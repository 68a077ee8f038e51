"""The web dashboard: over HTTP, mounted into other applications, and in a real browser."""
