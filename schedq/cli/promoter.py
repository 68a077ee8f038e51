"""`schedq promoter`: the promoter daemon on its own."""

from __future__ import annotations

from contextlib import suppress

import click

from schedq.cli import lasting, logs
from schedq.cli.options import log_options, redis_option
from schedq.cli.queues import named_queue, visited, warn_if_new
from schedq.cli.typed import QUEUE_NAME
from schedq.errors import SchedqError
from schedq.logger import log
from schedq.service import run_promoters


@click.command(
    short_help="Wake due jobs and take back those of dead workers, without application code.",
    epilog="Example:  schedq promoter emails reports --redis redis://redis.internal:6379/0",
    no_args_is_help=True,
)
@click.argument("names", metavar="NAME...", nargs=-1, required=True, type=QUEUE_NAME)
@redis_option
@log_options
def promoter(names: tuple[str, ...], redis_url: str | None, log_format: str, verbose: int, quiet: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """Move due jobs to the workers and take back what dead workers held, for the queues named NAME.

    Needs no application code. Workers do this too, unless they are told not to; any number of promoters may run,
    one per queue is at work and the others stand by.
    """
    logs.set_up(log_format, verbose, quiet=quiet)
    lasting.heed_signals()
    queues = [named_queue(name, redis_url) for name in dict.fromkeys(names)]
    with suppress(SchedqError):  # Redis may come later, and who promotes need not be allowed to look around
        for queue in queues:
            with visited(queue.name, redis_url) as looked_at:
                warn_if_new(looked_at, redis_url, log.warning)
    lasting.run(run_promoters(queues))
