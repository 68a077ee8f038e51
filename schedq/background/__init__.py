"""What keeps a queue going next to the handlers: promoter, reclaimer, scheduler, registrar."""
