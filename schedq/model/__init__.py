"""The data that everything else works with: settings, keys, records of jobs, retries, durations. No I/O."""
