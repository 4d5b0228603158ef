"""Who asks. PUT YOUR AUTHENTICATION HERE: anybody can write any name into a header."""

from typing import Annotated

from fastapi import Depends, Header, HTTPException


async def current_user(x_user: Annotated[str | None, Header(max_length=200)] = None) -> str:
    """
    Return the id of the user who sends a request.

    A placeholder. In production, verify a session or a token here and return the id that it stands for; the id may be
    any string, for scopes quote it. Everything that keeps users apart rests on this function.

    :param x_user: The header `X-User`.
    :returns: The user's id.
    :raises HTTPException: 401 without one.
    """
    if not x_user:
        raise HTTPException(401, "Who are you? Send a header X-User.")
    return x_user


CurrentUser = Annotated[str, Depends(current_user)]
