"""The background work of a worker, in addition to its handlers: promoter, reclaimer, scheduler and registrar."""
