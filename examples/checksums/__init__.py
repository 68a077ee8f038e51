"""SHA-256 checksums of all files in a folder: one job per file, on all cores, with a progress bar over all of them.

From the folder `examples`, with a Redis on localhost or `export REDIS_URL=embedded://data`:

    pip install 'schedq[embedded]'
    schedq worker checksums.tasks:queue --processes 2 &
    python -m checksums guide > SHA256SUMS
    sha256sum --check --quiet SHA256SUMS

`tasks.py` is the job, `__main__.py` the script that fans out and gathers. Tests: `test_checksums.py`.
"""
