"""`schedq send`: send a message to a workflow."""

from __future__ import annotations

import sys
from typing import Any

import click

from schedq.cli import output
from schedq.cli.params import JOB_ID, Checked, from_json, json_option, queue_of_id_option, redis_option
from schedq.cli.queues import queue_of_job, wrong_usage
from schedq.model.runs import checked_message_id, checked_topic


@click.command(
    epilog="""\b
Examples:
  schedq send order-17 paid
  schedq send order-17 paid '{"amount": 12}' --id payment-99 --queue orders
  echo '"yes"' | schedq send expense-3 verdict -""",
    no_args_is_help=True,
)
@click.argument("job_id", metavar="ID", type=JOB_ID)
@click.argument("topic", metavar="TOPIC", type=Checked("topic", checked_topic))
@click.argument("value", metavar="[JSON]", default="null")
@click.option(
    "--id",
    "message_id",
    type=Checked("id", checked_message_id),
    metavar="MESSAGE",
    help="Id of the message: sent again with the same id, it changes nothing.",
)
@queue_of_id_option
@redis_option
@json_option
def send(
    job_id: str,
    topic: str,
    value: str,
    message_id: str | None,
    queue_name: str | None,
    redis_url: str | None,
    as_json: bool,
) -> None:
    """Send a message to the workflow whose job is ID, which takes it with ctx.receive(TOPIC), now or later.

    Without JSON the message is null; - reads it from standard input. Exit code 1: the job has ended, or is not stored.
    """
    found: Any = from_json(sys.stdin.read() if value == "-" else value)
    with queue_of_job(queue_name, redis_url, [job_id]) as queue:
        with wrong_usage():
            is_sent = queue.job(job_id).send(topic, found, message_id)
        name = queue.name
    if as_json:
        output.show_json({"queue": name, "id": job_id, "topic": topic, "sent": is_sent})
    elif is_sent:
        output.line(f"job {job_id} of queue {name}: message sent to topic {topic}")
    else:
        raise click.ClickException(f"job {job_id} of queue {name} has ended or is not stored, and takes no messages")
    if not is_sent:
        raise click.exceptions.Exit(1)
