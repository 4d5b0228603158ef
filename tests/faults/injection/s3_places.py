"""What can happen to S3 servers and on the way to them."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random

from haystack.utils import Secret
from tests.faults.injection.faults import Fault, Place
from tests.services.ports import LOOPBACK
from tests.services.proxy import Proxy, proxy_to
from tests.services.s3_faults import Answer, faulty_s3
from tests.services.s3_servers import BUCKET, ENVIRONMENT, s3_server

from haybaler_s3 import S3ToolResultStore

TIMEOUT = 0.5  # seconds without a byte of the answer
LATE = 30.0


def _store(endpoint: str) -> S3ToolResultStore:
    return S3ToolResultStore(
        BUCKET,
        endpoint_url=endpoint,
        access_key_id=Secret.from_token(ENVIRONMENT["AWS_ACCESS_KEY_ID"]),
        secret_access_key=Secret.from_token(ENVIRONMENT["AWS_SECRET_ACCESS_KEY"]),
        connect_timeout=TIMEOUT,
        read_timeout=TIMEOUT,
        attempts=2,
    )


@contextmanager
def _answering(answer: Answer, delay: float = 0.0) -> Iterator[Place]:
    """A server that answers like that to everything, from the strike until it is healed."""
    with faulty_s3() as server:

        def strike(_: Random) -> None:
            server.answers = {operation: [answer] for operation in ("PUT", "GET")}
            server.delay = delay

        def heal() -> None:
            server.answers, server.delay = {}, 0.0

        yield Place(_store(server.endpoint), strike, heal)


@contextmanager
def _behind_a_proxy(fault: Callable[[Proxy, float], object]) -> Iterator[Place]:
    """A server that works, and a way to it that does not for a while."""
    with s3_server() as server, proxy_to(server.port) as proxy:
        yield Place(_store(f"http://{LOOPBACK}:{proxy.port}"), lambda chance: fault(proxy, chance.uniform(0, 0.3)))


def _cut(proxy: Proxy, seconds: float) -> None:
    proxy.cut()
    time.sleep(seconds)
    proxy.restore()


def _held_up(proxy: Proxy, seconds: float) -> None:
    proxy.flow.clear()
    time.sleep(seconds)
    proxy.flow.set()


SHARE = 0.2  # botocore takes its time
# Two attempts for each write, in each of the three steps of a run.
S3_FAULTS = [
    Fault("S3", "503 SlowDown", partial(_answering, Answer(503, "SlowDown")), delay=6.0, share=SHARE),
    Fault("S3", "500", partial(_answering, Answer(500, "InternalError")), delay=6.0, share=SHARE),
    Fault("S3", "403", partial(_answering, Answer(403, "AccessDenied")), delay=3.0, share=SHARE),
    Fault("S3", "bodies that break off", partial(_answering, Answer(truncate=True)), delay=3.0, share=SHARE),
    Fault("S3", "connections reset", partial(_answering, Answer(reset=True)), delay=6.0, share=SHARE),
    Fault("S3", f"an answer after {LATE:.0f} s", partial(_answering, Answer(), delay=LATE), delay=15.0, share=SHARE),
    Fault("S3", "no way to the server", partial(_behind_a_proxy, _cut), delay=6.0, share=SHARE),
    Fault("S3", "nothing goes through for a while", partial(_behind_a_proxy, _held_up), delay=6.0, share=SHARE),
]
