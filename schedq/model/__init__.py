"""The facts that everything else works with: settings, keys, records of jobs, retries, durations. No Redis here."""
