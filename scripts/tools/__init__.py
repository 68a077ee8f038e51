"""The code of the commands in scripts/: `scripts/chaos` runs `scripts/tools/chaos`, and so on."""
