"""
Taking out of errors what may repeat a credential: the words of the server, headers, and parts of URLs.

Which credentials a client uses is not always known here: boto finds them in many places, and ready clients bring their
own. So nothing is looked for in these texts; they are left out.
"""

import re

from botocore.exceptions import BotoCoreError, ClientError

from haybaler.errors import HaybalerError

LEFT_OUT = "(left out: it may repeat a credential)"
# What a code or an identifier of a request looks like; anything else is the server's own words.
PLAIN = re.compile(r"[A-Za-z0-9.]{1,64}\Z")

_HEADER = re.compile("header", re.IGNORECASE)
_USER = re.compile(r"//[^/@\s]*@")
_QUERY = re.compile(r"\?[^\s\"'<>]*")
_LONGEST_CHAIN = 20
# Where errors keep the request, with its headers, and the answer.
_REQUESTS = ("request", "response", "headers")
# What is kept of an answer that is an error: enough to find it in the server's own log.
_IDENTIFIERS = ("RequestId", "HostId")


def redact(error: BaseException) -> None:
    """
    Take out of an error, and of whatever it is chained to, what may repeat a credential. They are changed in place.

    A copy would not do: the original stays in reach, as the context in which its copy is raised.

    :param error: An error of the client library, or of one below it.
    """
    for link in _chain(error):
        if isinstance(link, ClientError):
            _redact_answer(link)
        elif not isinstance(link, HaybalerError):
            _redact_link(link)


def of_unsendable_header(error: BaseException) -> bool:
    """Whether a header could not be sent, since it holds a line break or the like; not: was misread."""
    return any(type(link) is ValueError and _HEADER.search(str(link)) for link in _chain(error))


def _chain(error: BaseException) -> list[BaseException]:
    """Return an error with its causes and the contexts of all of them, whether a traceback would show them or not."""
    found = [error]
    for link in found:
        near = (link.__cause__, link.__context__)
        found += [other for other in near if other is not None and not any(other is known for known in found)]
        if len(found) > _LONGEST_CHAIN:
            break
    return list({id(link): link for link in found}.values())


def _redact_answer(error: ClientError) -> None:
    said, about = error.response.get("Error", {}), error.response.get("ResponseMetadata", {})
    code = str(said.get("Code", ""))
    kept = {name: about[name] for name in _IDENTIFIERS if PLAIN.match(str(about.get(name, "")))}
    clean = ClientError(
        {
            "Error": {"Code": code if PLAIN.match(code) else "", "Message": LEFT_OUT},
            "ResponseMetadata": {"HTTPStatusCode": about.get("HTTPStatusCode", 0), **kept},
        },  # type: ignore[typeddict-item,unused-ignore]
        error.operation_name,
    )
    error.args, error.response = clean.args, clean.response


def _redact_link(error: BaseException) -> None:
    if any(not isinstance(part, int) for part in error.args):
        error.args = tuple(part if isinstance(part, int) else _redacted(str(part)) for part in error.args)
    held = vars(error)
    if isinstance(error, BotoCoreError):
        held["kwargs"] = {name: _redacted(str(value)) for name, value in error.kwargs.items()}
    held.update((name, None) for name in _REQUESTS if name in held)
    if "request_info" in held:  # of aiohttp, which needs it for the text
        held["request_info"] = held["request_info"]._replace(headers={})


def _redacted(text: str) -> str:
    return LEFT_OUT if _HEADER.search(text) else _QUERY.sub("?...", _USER.sub("//...@", text))
