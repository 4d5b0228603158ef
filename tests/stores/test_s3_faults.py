"""What a server does wrong becomes the right error of the tree, in both colours, after a bounded number of attempts."""

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest
from botocore.exceptions import ClientError
from haystack.utils import Secret
from tests.services.ports import LOOPBACK, free_port
from tests.services.s3_faults import WELL, Answer, FaultyS3, faulty_s3

from haybaler.errors import (
    CorruptEntryError,
    EntryTooLargeError,
    ReferenceNotFoundError,
    StoreConfigurationError,
    StoreError,
    StoreFullError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from haybaler.stores.protocol import StoreEntry, StorePage
from haybaler_s3 import S3ToolResultStore
from haybaler_s3.deadlines import request_seconds
from haybaler_s3.failures import mapped

T = TypeVar("T")
MIB = 1024 * 1024

pytestmark = pytest.mark.usefixtures("s3_environment", "short_pauses")

SYNC, ASYNC = "sync", "async"
both_colours = pytest.mark.parametrize("colour", [SYNC, ASYNC])


def store_of(server: FaultyS3, **options: Any) -> S3ToolResultStore:
    settings = {"attempts": 2, "connect_timeout": 2, "read_timeout": 0.3, **options}
    return S3ToolResultStore("bucket", endpoint_url=server.endpoint, **settings)


def call(
    store: S3ToolResultStore,
    colour: str,
    run: Callable[[S3ToolResultStore], T],
    run_async: Callable[[S3ToolResultStore], Awaitable[T]],
) -> T:
    """Use a store in one of the colours, and close it."""
    if colour == SYNC:
        with store:
            return run(store)

    async def use() -> T:
        async with store:
            return await run_async(store)

    return asyncio.run(use())


def write(store: S3ToolResultStore, colour: str, content: str | bytes = "content", key: str = "key") -> str:
    return call(
        store, colour, lambda s: s.write(key=key, content=content), lambda s: s.write_async(key=key, content=content)
    )


def read(store: S3ToolResultStore, colour: str, reference: str) -> str | bytes:
    return call(store, colour, lambda s: s.read(reference), lambda s: s.read_async(reference))


def delete(store: S3ToolResultStore, colour: str, references: list[str]) -> None:
    call(store, colour, lambda s: s.delete(references), lambda s: s.delete_async(references))


def page(store: S3ToolResultStore, colour: str, reference: str) -> StorePage:
    return call(
        store, colour, lambda s: s.read_page(reference, limit=5), lambda s: s.read_page_async(reference, limit=5)
    )


FAILURES = [
    # row 45: asked again, then reported as something that passes
    (Answer(503, "SlowDown"), StoreUnavailableError, 2),
    (Answer(500, "InternalError"), StoreUnavailableError, 2),
    (Answer(429, "TooManyRequests"), StoreUnavailableError, 2),
    (Answer(502, "BadGateway"), StoreUnavailableError, 2),
    (Answer(507, "InsufficientStorage"), StoreFullError, 1),
    # row 46: not asked again, as a clock does not mend itself
    (Answer(403, "RequestTimeTooSkewed"), StoreConfigurationError, 1),
    (Answer(403, "AccessDenied"), StoreConfigurationError, 1),
    (Answer(403, "InvalidAccessKeyId"), StoreConfigurationError, 1),
    (Answer(403, "SignatureDoesNotMatch"), StoreConfigurationError, 1),
    (Answer(400, "ExpiredToken"), StoreConfigurationError, 1),
    (Answer(404, "NoSuchBucket"), StoreConfigurationError, 1),
    (Answer(400, "EntityTooLarge"), EntryTooLargeError, 1),
    (Answer(400, "SomethingElse"), StoreError, 1),
    # row 47: what the client leaves out
    (Answer(409, "OperationAborted"), StoreUnavailableError, 2),
    (Answer(409, "ConditionalRequestConflict"), StoreUnavailableError, 2),
    (Answer(hang=True), StoreTimeoutError, 2),
]


@both_colours
@pytest.mark.parametrize(("answer", "kind", "attempts"), FAILURES, ids=lambda value: getattr(value, "code", None))
def test_rows_45_to_47_a_failure_of_a_write_is_the_right_error_after_so_many_attempts(
    answer: Answer, kind: type[StoreError], attempts: int, colour: str
) -> None:
    with faulty_s3(PUT=[answer]) as server:
        with pytest.raises(StoreError) as caught:
            write(store_of(server), colour)
        assert type(caught.value) is kind
        assert server.count("PUT") == attempts


@both_colours
@pytest.mark.parametrize(("answer", "kind", "attempts"), FAILURES, ids=lambda value: getattr(value, "code", None))
def test_rows_45_to_47_a_failure_of_a_read_is_the_right_error_after_so_many_attempts(
    answer: Answer, kind: type[StoreError], attempts: int, colour: str
) -> None:
    with faulty_s3(GET=[answer]) as server:
        store = store_of(server)
        with pytest.raises(StoreError) as caught:
            read(store, colour, store.reference("key"))
        assert type(caught.value) is kind
        assert server.count("GET") == attempts


@both_colours
@pytest.mark.parametrize(
    "answer",
    [
        Answer(503, "SlowDown"),
        Answer(500, "InternalError"),
        Answer(409, "OperationAborted"),
        Answer(reset=True),
        Answer(500, "InternalError", truncate=True),
        Answer(hang=True),
    ],
    ids=["SlowDown", "InternalError", "OperationAborted", "reset", "truncated", "hang"],
)
def test_rows_45_and_47_what_passes_is_not_noticed(answer: Answer, colour: str) -> None:
    with faulty_s3(PUT=[answer, WELL], GET=[answer, WELL]) as server:
        store = store_of(server)
        reference = write(store, colour)
        assert read(store, colour, reference) == "content"


@both_colours
def test_row_47_a_connection_that_is_always_reset_is_an_unavailable_server_after_few_attempts(colour: str) -> None:
    with faulty_s3(PUT=[Answer(reset=True)], GET=[Answer(reset=True)]) as server:
        store = store_of(server)
        with pytest.raises(StoreUnavailableError):
            write(store, colour)
        with pytest.raises(StoreUnavailableError):
            read(store, colour, store.reference("key"))
        # aiohttp sends once more of its own accord where a connection may have been too old.
        assert len(server.requests) <= 8


@both_colours
def test_row_47_a_server_that_hangs_costs_no_more_than_the_timeouts(colour: str) -> None:
    with faulty_s3(PUT=[Answer(hang=True)]) as server:
        before = time.monotonic()
        with pytest.raises(StoreTimeoutError):
            write(store_of(server, read_timeout=0.2, attempts=3), colour)
        assert time.monotonic() - before < 20  # three timeouts and the pauses between them
        assert server.count("PUT") == 3


OPERATIONS: dict[str, Callable[[S3ToolResultStore, str], object]] = {
    "PUT": write,
    "UploadPart": lambda store, colour: write(store, colour, b"x" * (9 * MIB)),
    "GET": lambda store, colour: read(store, colour, store.reference("key")),
    "DELETE": lambda store, colour: delete(store, colour, [store.reference("key")]),
    "DeleteObjects": lambda store, colour: delete(store, colour, [store.reference(key) for key in "ab"]),
    "List": lambda store, colour: call(store, colour, lambda s: s.delete_scope(), lambda s: s.delete_scope_async()),
    "HEAD": lambda store, colour: call(
        store, colour, lambda s: s.stat(s.reference("key")), lambda s: s.stat_async(s.reference("key"))
    ),
}


@both_colours
@pytest.mark.parametrize("operation", OPERATIONS)
def test_row_47_a_server_that_trickles_holds_no_caller_longer_than_its_deadline(operation: str, colour: str) -> None:
    # Each byte comes before the timeout for the next one.
    with faulty_s3(**{operation: [Answer(trickle=True)]}) as server:
        store = store_of(server, attempts=1, connect_timeout=0.2, min_bytes_per_second=100 * MIB)
        before = time.monotonic()
        with pytest.raises(StoreTimeoutError):
            OPERATIONS[operation](store, colour)
        assert time.monotonic() - before < 10


@both_colours
def test_row_47_an_entry_that_trickles_holds_no_caller_longer_than_its_deadline(colour: str) -> None:
    with faulty_s3(GET=[Answer(pace=1)]) as server:
        store = store_of(server, attempts=2)
        reference = write(store, colour, b"x" * 10_000)
        before = time.monotonic()
        with pytest.raises(StoreTimeoutError):
            read(store, colour, reference)
        assert time.monotonic() - before < 20
        assert server.count("GET") == 2


@both_colours
def test_rows_10_and_58_the_deadline_of_an_entry_grows_with_its_size(colour: str) -> None:
    # 20 KB a second, for three times as long as a short answer may take.
    with faulty_s3(GET=[Answer(pace=1000)]) as server:
        content = b"x" * 40_000
        patient = store_of(server, attempts=1, min_bytes_per_second=10_000)
        reference = write(patient, colour, content)
        assert read(patient, colour, reference) == content
        with pytest.raises(StoreTimeoutError):
            read(store_of(server, attempts=1, min_bytes_per_second=1_000_000), colour, reference)


@pytest.mark.parametrize(("attempts", "waits"), [(1, 0), (2, 1), (4, 7), (6, 31), (8, 71)])
def test_row_47_the_deadline_leaves_time_for_all_attempts_and_the_waits_between_them(attempts: int, waits: int) -> None:
    options: dict[str, Any] = {"attempts": attempts, "connect_timeout": 5, "read_timeout": 20}
    settings = S3ToolResultStore("bucket", min_bytes_per_second=1000, **options)._settings_of_store
    assert request_seconds(settings, 3000) == attempts * (5 + 2 * 20 + 3) + waits


@both_colours
def test_no_server_at_all_is_an_unavailable_store(colour: str) -> None:
    nowhere = FaultyS3(port=free_port())
    store = store_of(nowhere)
    with pytest.raises(StoreUnavailableError):
        write(store, colour)
    with pytest.raises(StoreUnavailableError):
        read(store, colour, store.reference("key"))
    with pytest.raises(StoreUnavailableError):
        delete(store, colour, [store.reference("key")])


@both_colours
def test_no_such_host_is_an_unavailable_store(colour: str) -> None:
    store = S3ToolResultStore("bucket", endpoint_url="http://nowhere.invalid:1", attempts=1)
    with pytest.raises(StoreUnavailableError):
        write(store, colour)


@both_colours
def test_row_47_an_error_document_under_status_200_is_an_error(colour: str) -> None:
    with faulty_s3(PUT=[Answer(200, "InternalError")]) as server:
        with pytest.raises(StoreUnavailableError):
            write(store_of(server), colour)
        assert server.count("PUT") == 2


@both_colours
def test_row_47_an_error_document_instead_of_an_entry_is_not_taken_for_it(colour: str) -> None:
    with faulty_s3(GET=[Answer(200, "InternalError")]) as server:
        store = store_of(server)
        with pytest.raises(CorruptEntryError):
            read(store, colour, store.reference("key"))


# A body that is shorter than announced is never taken for the whole.
@both_colours
@pytest.mark.parametrize("size", [10, 300_000])
def test_row_41_a_body_that_breaks_off_is_asked_for_again(size: int, colour: str) -> None:
    with faulty_s3(GET=[Answer(truncate=True), WELL]) as server:
        store = store_of(server)
        reference = write(store, colour, b"x" * size)
        assert read(store, colour, reference) == b"x" * size
        assert server.count("GET") == 2


@both_colours
def test_row_41_a_body_that_always_breaks_off_is_an_unavailable_server(colour: str) -> None:
    with faulty_s3(GET=[Answer(truncate=True)]) as server:
        store = store_of(server)
        reference = write(store, colour)
        with pytest.raises(StoreUnavailableError):
            read(store, colour, reference)
        assert server.count("GET") == 2


@both_colours
def test_row_51_an_object_without_its_metadata_is_corrupt(colour: str) -> None:
    with faulty_s3(GET=[Answer(bare=True)]) as server:
        store = store_of(server)
        reference = write(store, colour)
        with pytest.raises(CorruptEntryError):
            read(store, colour, reference)
        with pytest.raises(CorruptEntryError):
            call(
                store,
                colour,
                lambda s: s.read_page(reference, limit=5),
                lambda s: s.read_page_async(reference, limit=5),
            )


@both_colours
@pytest.mark.parametrize("said", ["", "t", "x.7.7.0", "t.7.7.zz", "t.8.7.00000000", "t.7.7.00000000"])
def test_row_51_metadata_that_is_not_what_was_written_is_corrupt(said: str, colour: str) -> None:
    with faulty_s3() as server:
        store = store_of(server)
        reference = write(store, colour)
        (path,) = server.objects
        server.objects[path] = b"content", {"x-amz-meta-haybaler": said}
        with pytest.raises(CorruptEntryError):
            read(store, colour, reference)


# Servers change the case of names.
@both_colours
def test_row_51_the_case_of_metadata_names_does_not_matter(colour: str) -> None:
    with faulty_s3() as server:
        store = store_of(server)
        reference = write(store, colour)
        (path,) = server.objects
        data, said = server.objects[path]
        server.objects[path] = data, {name.title(): value for name, value in said.items()}
        assert read(store, colour, reference) == "content"


@both_colours
def test_a_missing_entry_is_not_found_after_one_attempt(colour: str) -> None:
    with faulty_s3() as server:
        store = store_of(server)
        with pytest.raises(ReferenceNotFoundError):
            read(store, colour, store.reference("key"))
        assert server.count("GET") == 1


# Older servers know no CRC and want an MD5 for the deletion of many.
@both_colours
@pytest.mark.parametrize(
    "answer",
    [Answer(501, "NotImplemented"), Answer(400, "MissingContentMD5")],
    ids=lambda answer: answer.code,
)
def test_row_35_where_many_cannot_be_deleted_at_once_each_is_deleted(answer: Answer, colour: str) -> None:
    with faulty_s3(DeleteObjects=[answer]) as server:
        store = store_of(server, attempts=1)
        delete(store, colour, [store.reference(str(number)) for number in range(1002)])
        assert server.count("DELETE") == 1002
        assert server.count("DeleteObjects") == 1


@both_colours
def test_deleting_without_permission_says_so(colour: str) -> None:
    with faulty_s3(DeleteObjects=[Answer(403, "AccessDenied")], DELETE=[Answer(403, "AccessDenied")]) as server:
        store = store_of(server)
        for references in (["a"], ["a", "b"]):
            with pytest.raises(StoreConfigurationError):
                delete(store, colour, [store.reference(key) for key in references])


# A failed upload in parts is aborted, whichever of its requests failed.
@both_colours
@pytest.mark.parametrize("failing", ["UploadPart", "CompleteMultipartUpload"])
def test_row_42_an_upload_that_fails_is_aborted(failing: str, colour: str) -> None:
    with faulty_s3(**{failing: [Answer(403, "AccessDenied")]}) as server:
        with pytest.raises(StoreConfigurationError):
            write(store_of(server, read_timeout=5), colour, b"x" * (12 * MIB))
        assert server.count("AbortMultipartUpload") == 1


@both_colours
def test_row_42_an_upload_that_cannot_be_aborted_still_reports_its_own_failure(
    colour: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        faulty_s3(
            UploadPart=[Answer(403, "AccessDenied")], AbortMultipartUpload=[Answer(403, "AccessDenied")]
        ) as server,
        pytest.raises(StoreConfigurationError),
    ):
        write(store_of(server, read_timeout=5), colour, b"x" * (12 * MIB))
    assert "could not be aborted" in caplog.text


@both_colours
def test_one_failing_entry_of_a_batch_harms_no_other(colour: str) -> None:
    entries = [StoreEntry(str(number), f"content {number}") for number in range(20)]
    entries[7] = StoreEntry("7", "x" * 100)
    with faulty_s3() as server:
        store = store_of(server, max_bytes=50)
        outcomes = call(store, colour, lambda s: s.write_many(entries), lambda s: s.write_many_async(entries))
    assert isinstance(outcomes[7], EntryTooLargeError)
    assert [str(o) for i, o in enumerate(outcomes) if i != 7] == [store.reference(str(i)) for i in range(20) if i != 7]


def test_rows_39_and_46_a_thousand_writes_wait_for_their_turn_unsigned() -> None:
    # Bounded also where nobody made a batch of them; what is signed does not wait.
    with faulty_s3() as server:
        server.delay = 0.002
        store = store_of(server, max_concurrency=8, read_timeout=5)

        async def use() -> None:
            async with store:
                await asyncio.gather(*(store.write_async(key=str(number), content="x") for number in range(300)))

        asyncio.run(use())
        assert server.count("PUT") == 300
        assert server.most <= 8


# Small bodies are not announced first.
@both_colours
def test_row_60_a_small_body_comes_with_its_header_and_a_large_one_is_announced(colour: str) -> None:
    with faulty_s3() as server:
        store = store_of(server, read_timeout=5)
        write(store, colour, b"x" * 1000)
        assert server.expected == []
        write(store, colour, b"x" * 1_000_000, key="large")
        assert len(server.expected) == 1


@both_colours
@pytest.mark.parametrize("size", [1, 9 * MIB])
def test_row_57_no_write_and_no_deletion_depends_on_a_condition_that_a_server_may_ignore(
    size: int, colour: str
) -> None:
    with faulty_s3() as server:
        store = store_of(server, read_timeout=5)
        delete(store, colour, [write(store, colour, b"x" * size), store.reference("another")])
        delete(store, colour, [store.reference("key")])
        assert {"PUT", "CompleteMultipartUpload"} & set(server.requests)
        assert [name for name in server.headers if name.lower().startswith("if-")] == []


SECRETS = ("the-id", "the-secret", "the-token")
SECRETIVE = [
    (code, StoreConfigurationError)
    for code in (
        "InvalidToken",
        "InvalidSecurity",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "AuthorizationHeaderMalformed",
        "ExpiredToken",
        "ExpiredTokenException",
        "TokenRefreshRequired",
        "AccessDenied",
        "RequestTimeTooSkewed",
        "NobodyKnowsThisOne",
    )
] + [("InternalError", StoreUnavailableError), ("the-token", StoreConfigurationError)]


def secretive(server: FaultyS3, token: str = "the-token", **options: Any) -> S3ToolResultStore:
    return store_of(
        server,
        access_key_id=Secret.from_token("the-id"),
        secret_access_key=Secret.from_token("the-secret"),
        session_token=Secret.from_token(token),
        **options,
    )


def everything_of(error: BaseException | None) -> Iterator[str]:
    """Yield all that an error and what it is chained to can show, also where a traceback would not."""
    while error is not None:
        yield repr((error, error.args, vars(error), getattr(error, "__notes__", ())))
        yield str(error)
        error = error.__cause__ or error.__context__


def assert_no_secret(error: BaseException, *more: str) -> None:
    shown = "".join([*traceback.format_exception(error), *everything_of(error), *more])
    assert not [secret for secret in SECRETS if secret in shown]


@both_colours
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("code", "kind"), SECRETIVE)
def test_no_error_and_no_log_line_repeats_a_credential_whatever_the_server_says(
    code: str, kind: type[StoreError], operation: str, colour: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    status = 500 if kind is StoreUnavailableError else 403
    refused = Answer(status, code, message="Refused: the-id, the-token, the-secret")
    with faulty_s3(**{operation: [refused]}) as server:
        store = secretive(server, attempts=1, read_timeout=5)
        with pytest.raises(kind) as caught:
            OPERATIONS[operation](store, colour)
    assert type(caught.value) is kind
    assert_no_secret(caught.value, caplog.text, repr(store), store.reference("key"))


@both_colours
def test_a_credential_that_cannot_be_sent_says_so_and_is_not_repeated(colour: str) -> None:
    # A file that holds a token often ends in a line break.
    with faulty_s3() as server:
        with pytest.raises(StoreConfigurationError, match="characters that cannot be sent") as caught:
            write(secretive(server, token=f"{SECRETS[-1]}\n!"), colour)
        assert server.requests == []
    assert_no_secret(caught.value)


def test_a_credential_shows_neither_in_a_cause_nor_in_the_context_beside_it() -> None:
    def said(text: str) -> ClientError:
        return ClientError({"Error": {"Code": "InvalidToken", "Message": text}}, "PutObject")

    error = said("the-id")
    error.__cause__, error.__context__ = said("the-token"), said("the-secret")
    error.__cause__.__context__ = ValueError("Invalid header value the-secret")
    error.__cause__.__context__.__context__ = error  # a ring ends
    failure = mapped(error, action="write an entry")
    for link in (failure, error, error.__cause__, error.__context__, error.__cause__.__context__):
        assert not [secret for secret in SECRETS if secret in repr((link, str(link), vars(link)))]


@both_colours
def test_a_url_in_an_error_shows_no_credentials(colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://the-id:the-secret@{LOOPBACK}:{free_port()}")
    with pytest.raises(StoreError) as caught:
        write(S3ToolResultStore("bucket", path_style=True, attempts=1), colour)
    assert_no_secret(caught.value)


@both_colours
def test_no_credentials_at_all_says_so(colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(StoreConfigurationError, match="no credentials"):
        write(S3ToolResultStore("bucket", endpoint_url=f"http://{LOOPBACK}:1"), colour)
