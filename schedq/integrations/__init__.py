"""Connects schedq with frameworks, one module for each. Only the ones that an application imports are loaded."""
