"""Hayhooks with a lifespan: what `hayhooks run` alone does not have is somebody who opens and closes the service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import hayhooks
from fastapi import APIRouter, FastAPI
from hayhooks.server.pipelines.registry import registry
from hayhooks.settings import settings

from examples.server.app import health


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with registry.get("agent").service.opened() as service:  # Hayhooks has deployed it by now
        app.state.service = service
        yield


def create_app() -> FastAPI:
    """Return Hayhooks' application with the Agent, `/health`, and a lifespan around both."""
    settings.pipelines_dir = str(Path(__file__).parent / "pipelines")
    app: FastAPI = hayhooks.create_app()
    app.include_router(APIRouter(lifespan=_lifespan))
    app.include_router(health)
    return app
