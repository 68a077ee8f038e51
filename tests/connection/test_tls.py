"""`rediss://`: the server's certificate is verified by default, and an error says why it was not trusted."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
import trustme

from schedq import StoreUnavailable, UsageError
from schedq.connection.address import Address
from tests.conftest import MakeQueue
from tests.connection.tls import Front
from tests.doors import Handle
from tests.servers import Server
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew

NOW = datetime.now(UTC)
CA, STRANGER = trustme.CA(), trustme.CA()
CERTIFICATES = {
    "good": CA.issue_cert("localhost"),
    "of a stranger": STRANGER.issue_cert("localhost"),
    "of another host": CA.issue_cert("example.org"),
    "expired": CA.issue_cert("localhost", not_before=NOW - timedelta(days=9), not_after=NOW - timedelta(days=1)),
}
REFUSED = {
    "of a stranger": "unable to get local issuer certificate; to trust your own CA, add ?ssl_ca_certs=FILE to the URL",
    "of another host": "Hostname mismatch, certificate is not valid for 'localhost'",
    "expired": "certificate has expired",
}


@pytest.fixture(autouse=True, scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The system trusts one CA, of which no certificate is here, and not the hundred that each client would load."""
    path = tmp_path_factory.mktemp("system") / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(path))
        patch.setenv("SSL_CERT_DIR", str(path.parent / "none"))
        yield


@pytest.fixture(scope="module")
def ca_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The CA that the tests trust."""
    path = tmp_path_factory.mktemp("tls") / "ca.pem"
    CA.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture(scope="module")
def fronts(server: Server) -> Iterator[dict[str, Front]]:
    """A TLS proxy with each certificate."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(Front(server, one)) for name, one in CERTIFICATES.items()}


def url(front: Front, ca_file: Path | None = None, host: str = "localhost", **options: str) -> str:
    options |= {"ssl_ca_certs": str(ca_file)} if ca_file else {}
    return f"rediss://{host}:{front.port}/0?" + "&".join(f"{name}={value}" for name, value in options.items())


def test_a_queue_works_with_the_right_ca(make_queue: MakeQueue, fronts: dict[str, Front], ca_file: Path):
    queue = make_queue(url=url(fronts["good"], ca_file))

    job_id = queue.enqueue("a")
    assert queue.complete(queue.claim(1000), "done")

    assert queue.get_job(job_id).result == "done"
    assert queue.result(job_id, 60) == "done"


def test_a_waiting_claim_is_woken_through_tls(make_queue: MakeQueue, fronts: dict[str, Front], ca_file: Path):
    queue = make_queue(url=url(fronts["good"], ca_file))
    claiming = queue.start("claim", 20_000)
    until(lambda: queue.redis.info("clients")["blocked_clients"], within=60)

    job_id = queue.enqueue("a")

    assert claiming.result(60).id == job_id


def test_large_payloads_pass_through_tls(make_queue: MakeQueue, fronts: dict[str, Front], ca_file: Path):
    queue = make_queue(url=url(fronts["good"], ca_file))

    ids = queue.enqueue_many(["x" * 200_000] * 20)

    assert queue.get_job(ids[-1]).payload == "x" * 200_000
    assert queue.purge() == 20


def test_the_systems_cas_are_trusted(
    make_queue: MakeQueue, fronts: dict[str, Front], ca_file: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SSL_CERT_FILE", str(ca_file))  # OpenSSL reads them from there

    assert make_queue(url=url(fronts["good"])).enqueue("a")


@pytest.mark.parametrize("certificate", REFUSED)
def test_an_untrusted_certificate_is_reported_in_one_line_when_retries_end(
    make_queue: MakeQueue, fronts: dict[str, Front], ca_file: Path, certificate: str
):
    front = fronts[certificate]
    queue = make_queue(url=url(front, ca_file), retry_for=0.3)
    began, knocks = time.monotonic(), front.knocks

    with pytest.raises(StoreUnavailable) as refused:
        queue.enqueue("a")

    assert time.monotonic() - began < 25
    assert 2 <= front.knocks - knocks <= 8
    line = str(refused.value)
    assert line.startswith(f"enqueue: the certificate of rediss://localhost:{front.port}/0 is not trusted: ")
    assert REFUSED[certificate] in line
    assert "\n" not in line
    assert queue.state().keys == {}


def test_a_certificate_for_a_name_is_not_valid_for_an_address(
    make_queue: MakeQueue, fronts: dict[str, Front], ca_file: Path
):
    queue = make_queue(url=url(fronts["good"], ca_file, host="127.0.0.1"), retry_for=0)

    with pytest.raises(StoreUnavailable, match="IP address mismatch, certificate is not valid for '127.0.0.1'"):
        queue.enqueue("a")


def test_without_its_ca_a_certificate_is_not_trusted(make_queue: MakeQueue, fronts: dict[str, Front]):
    with pytest.raises(StoreUnavailable, match="ssl_ca_certs=FILE"):
        make_queue(url=url(fronts["good"]), retry_for=0).enqueue("a")


def test_only_an_option_in_the_url_turns_verification_off(make_queue: MakeQueue, fronts: dict[str, Front]):
    assert make_queue(url=url(fronts["of a stranger"], ssl_cert_reqs="none")).enqueue("a")


def test_the_host_name_alone_can_be_left_unchecked(make_queue: MakeQueue, fronts: dict[str, Front], ca_file: Path):
    assert make_queue(url=url(fronts["of another host"], ca_file, ssl_check_hostname="false")).enqueue("a")
    with pytest.raises(StoreUnavailable, match="issuer"):
        make_queue(url=url(fronts["of a stranger"], ca_file, ssl_check_hostname="false"), retry_for=0).enqueue("a")


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"ssl_cert_reqs": "none"}, "its certificate is not verified (ssl_cert_reqs=none)"),
        ({"ssl_check_hostname": "false"}, "the name in its certificate is not verified (ssl_check_hostname=false)"),
        ({}, ""),
    ],
)
def test_turning_verification_off_logs_one_warning(
    make_queue: MakeQueue,
    fronts: dict[str, Front],
    ca_file: Path,
    logs: Logs,
    monkeypatch: pytest.MonkeyPatch,
    option: dict[str, str],
    says: str,
):
    monkeypatch.setattr("schedq.connection.endpoint._warned_of", set())
    place = url(fronts["good"], ca_file, **option)

    for queue in (make_queue(url=place), make_queue(url=place)):
        queue.enqueue("a")

    assert [says in line for line in logs()] == ([True] if says else [])


def test_a_client_object_without_verification_logs_a_warning(
    make_queue: MakeQueue, fronts: dict[str, Front], logs: Logs, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("schedq.connection.endpoint._warned_of", set())

    make_queue(url=redis.Redis(port=fronts["of a stranger"].port, ssl=True, ssl_cert_reqs="none")).enqueue("a")

    assert ["ssl_cert_reqs=none" in line for line in logs()] == [True]


# -- a client object as `redis=`


@pytest.mark.parametrize("kind", [redis.Redis, redis.asyncio.Redis])
def test_a_client_is_used_with_its_ca(make_queue: MakeQueue, fronts: dict[str, Front], ca_file: Path, kind: Any):
    client = kind(host="localhost", port=fronts["good"].port, ssl=True, ssl_ca_certs=str(ca_file))

    assert make_queue(url=client).enqueue("a")


@pytest.mark.parametrize("kind", [redis.Redis, redis.asyncio.Redis])
@pytest.mark.parametrize("certificate", REFUSED)
def test_a_client_object_keeps_verification_on(
    make_queue: MakeQueue, fronts: dict[str, Front], ca_file: Path, kind: Any, certificate: str
):
    client = kind(host="localhost", port=fronts[certificate].port, ssl=True, ssl_ca_certs=str(ca_file))

    with pytest.raises(StoreUnavailable, match="is not trusted"):
        make_queue(url=client, retry_for=0).enqueue("a")


@pytest.mark.parametrize(
    "place", ["rediss://h", redis.Redis(ssl=True), redis.asyncio.Redis(ssl=True), redis.Redis.from_url("rediss://h")]
)
def test_verification_is_on_by_default(place: object):
    at = Address(place).find("")
    made = [at.connection("name"), at.async_connection("name")]

    for connection in made:
        found: Any = connection
        assert (found.cert_reqs, found.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize(
    "place", ["rediss://h?ssl_validate_ocsp=true", redis.Redis(ssl=True, ssl_validate_ocsp_stapled=True)]
)
def test_an_ocsp_check_that_schedq_can_not_make_is_refused(place: object):
    with pytest.raises(UsageError, match="OCSP"):
        Address(place)


# -- workers


@pytest.fixture
def crew() -> Iterator[Crew]:
    """Starts workers, which are stopped after the test."""
    crew = Crew()
    yield crew
    crew.end()


@pytest.fixture
def logs(caplog: pytest.LogCaptureFixture) -> Logs:
    """The messages logged so far."""
    caplog.set_level("INFO", logger="schedq")
    return lambda: [entry.getMessage() for entry in caplog.records if entry.name == "schedq"]


# Closing a TLS connection takes a round trip; a worker's event loop may be closed before that.
unheard_farewells = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


@unheard_farewells
def test_a_worker_and_its_promoter_work_through_tls(
    queue: Handle, make_queue: MakeQueue, fronts: dict[str, Front], ca_file: Path, crew: Crew
):
    through = make_queue(queue.queue.name, url=url(fronts["good"], ca_file))
    through.queue.handler(lambda payload: payload)
    crew.start(through)

    ids = [queue.enqueue("now"), queue.enqueue("later", delay=0.2)]

    assert [queue.result(job_id, 60) for job_id in ids] == ["now", "later"]


@unheard_farewells
@pytest.mark.parametrize("certificate", REFUSED)
def test_a_worker_logs_why_it_waits_and_begins_when_the_certificate_is_right(
    make_queue: MakeQueue, server: Server, ca_file: Path, crew: Crew, logs: Logs, certificate: str
):
    with Front(server, CERTIFICATES[certificate]) as front:
        queue = make_queue()
        through = make_queue(queue.queue.name, url=url(front, ca_file))
        through.queue.handler(lambda payload: payload)
        post = crew.start(through)
        job_id = queue.enqueue("a")
        until(lambda: front.knocks >= 3, within=60)
        why = REFUSED[certificate].partition(";")[0]
        until(
            lambda: any("lost" in line and why in line for line in logs())
        )  # a slow first attempt logs something else
        assert post.is_working
        assert queue.get_job(job_id).status == "pending"

        front.present(CERTIFICATES["good"])

        assert queue.result(job_id, 60) == "a"
        crew.end()
        through.close()


@unheard_farewells
def test_a_certificate_that_expires_while_a_worker_runs_is_named_in_the_log(
    make_queue: MakeQueue, server: Server, ca_file: Path, crew: Crew, logs: Logs
):
    with Front(server, CERTIFICATES["good"]) as front:
        queue = make_queue()
        through = make_queue(queue.queue.name, url=url(front, ca_file))
        through.queue.handler(lambda payload: payload)
        crew.start(through)
        assert queue.result(queue.enqueue("a"), 60) == "a"

        front.present(CERTIFICATES["expired"])
        for entry in queue.redis.client_list():
            if entry["name"].startswith(f"schedq-{queue.queue.name}") and ":0" not in entry["addr"]:
                queue.redis.client_kill_filter(_id=entry["id"])

        until(lambda: any("its certificate is not trusted: certificate has expired" in line for line in logs()))
        front.present(CERTIFICATES["good"])
        assert queue.result(queue.enqueue("b"), 60) == "b"
        crew.end()
        through.close()
