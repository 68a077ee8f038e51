"""Wrong calls: every marked line must fail the type checker, and no other."""

from typing import Any

from schedq import AttemptFacts, CallNext, CurrentJob, Depends, Fixed, Job, Observer, Queue, Worker, current_job, track

queue = Queue("mail")


def task_of(attempt: AttemptFacts) -> str:
    return attempt.task


@queue.task
def send(to: str, subject: str = "hi") -> int:
    return len(to + subject)


@queue.task(max_attempts=3)
async def fetch(url: str) -> bytes:
    return url.encode()


send.enqueue()  # E: too few
send.enqueue(7)  # E: wrong type
send.enqueue("ada", "hi", "there")  # E: too many
send.enqueue("ada", subjekt="hi")  # E: misspelled
send.enqueue("ada", delay=5)  # E: options are given by options()
send.options(60).enqueue("ada")  # E: by name only
send.options(delay="soon")  # E: not a duration
send.options(dealy=60)  # E: misspelled
fetch.enqueue(b"https://example.org")  # E: wrong type
send(7)  # E: the plain function too
wrong_result: Job[str] = send.enqueue("ada")  # E: its result is an int
wrong_async: Job[int] = fetch.enqueue("a")  # E: its result is bytes
queue.enqueue(1, 60)  # E: by name only
queue.enqueue(1, backoff=5)  # E: no plan
queue.enqueue(1, durability="disk")  # E: no such durability
queue.enqueue(1, job_id="one", must_create="yes")  # E: true or false
queue.claim("1000")  # E: no number
queue.stats().pending_dept  # E: misspelled
queue.stats().pending_depth = 5  # E: read-only
queue.complete(None)  # E: no claim
queue.cancel(3)  # E: no id
queue.inspector.why()  # E: too few
queue.schedules.pause("nightly", 3)  # E: too many
queue.task(max_attempts="3")  # E: no number
queue.enqueue(1, headers={"tenant": 7})  # E: no text
send.options(headers=["tenant"])  # E: no mapping
current_job().headers["tenant"] = "acme"  # E: read-only
queue.around(task_of)  # E: returns no context manager
queue.before_enqueue(len)  # E: takes another argument
some = queue.flow("some")
some.call(send, 7)  # E: wrong type
some.call(send, some.call(fetch, "a").result)  # E: bytes are no text
some.options(when="always")  # E: no such condition
some.start(some.call(send, "a"), delay="soon")  # E: not a duration
Queue("mail", visibility=5)  # E: misspelled
Queue("mail", durability=True)  # E: no such durability
Queue("mail", backoff=Fixed)  # E: a class


current_job().progress("3")  # E: no number
current_job().meta["page"] = 1  # E: read-only
track(5)  # E: not iterable


def tenant(job: int = Depends(current_job)) -> None: ...  # E: another type


def user(job: CurrentJob = Depends(5)) -> None: ...  # E: no function


def plain_layer(attempt: AttemptFacts, call_next: CallNext) -> int:
    return attempt.job.attempts


async def takes_one(attempt: AttemptFacts) -> Any: ...


async def takes_a_job(attempt: int, call_next: CallNext) -> Any: ...


queue.use(plain_layer)  # E: not async
queue.use(takes_one)  # E: too few arguments
queue.use(takes_a_job)  # E: another type
Worker([queue], middleware=[plain_layer])  # E: not async
queue.observe(Observer)  # E: a class
queue.register(print)  # E: no task


def takes_text(attempt: AttemptFacts, error: str) -> None: ...


async def takes_too_few(attempt: AttemptFacts, error: BaseException) -> None: ...


queue.task(on_failure=takes_text)  # E: another type
queue.task(on_success=takes_one)  # E: too few arguments
queue.task(on_retry=takes_too_few)  # E: no delay
queue.task(retry_on=ValueError("x"))  # E: no type
queue.task(discard_on=[ValueError])  # E: no tuple


async def main() -> None:
    await queue.cancel("one")  # E: not awaited
    await queue.aio.enqueue(1, dealy=60)  # E: misspelled
    _id: str = queue.aio.enqueue(1)  # E: to be awaited
    await send.aenqueue(7)  # E: wrong type
    await fetch.aenqueue()  # E: too few
    _text: str = await send.aenqueue("ada")  # E: a job
