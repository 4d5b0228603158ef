"""The FastAPI application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Depends, FastAPI, Request
from pydantic import BaseModel, StringConstraints

from examples.server.agent import build_agent
from examples.server.model import chat_model
from examples.server.service import AgentService
from examples.server.settings import Settings
from examples.server.store import choose_store, problem_of
from examples.server.streaming import RunResponse
from examples.server.users import CurrentUser

Question = Annotated[str, StringConstraints(min_length=1, max_length=20_000)]


class Asked(BaseModel):
    """The body of a request."""

    question: Question


async def service_of(request: Request) -> AgentService:
    """Return what the lifespan has opened."""
    service: AgentService = request.app.state.service
    return service


Service = Annotated[AgentService, Depends(service_of)]

runs = APIRouter()
health = APIRouter()


@runs.post("/runs", response_class=RunResponse)
async def answer(asked: Asked, user: CurrentUser, service: Service) -> RunResponse:
    """Answer a question; the answer is streamed as server-sent events."""
    return RunResponse(service.open_run(user, asked.question))


@health.get("/health")
async def report(service: Service) -> dict[str, Any]:
    """Tell how the server is. Runs are answered without the store as well, so the status is 200 in any case."""
    problem = await problem_of(service.store)
    return {
        "status": "degraded" if problem else "ok",
        "store": {"type": type(service.store).__name__, "usable": problem is None, "problem": problem},
        "runs": service.runs,
    }


def create_app(settings: Settings | None = None, model: Any = None) -> FastAPI:
    """
    Return the application: `uvicorn --factory examples.server.app:create_app`.

    :param settings: By default those of the environment.
    :param model: A chat generator; by default the one of `model.py`.
    :returns: The application. Its lifespan opens the store and the Agent, and closes them when all runs have ended.
    """
    chosen = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        store = await to_thread.run_sync(choose_store, chosen)
        async with AgentService(build_agent(chosen, model or chat_model()), store, chosen).opened() as service:
            app.state.service = service
            yield

    app = FastAPI(title="An Agent with haybaler", lifespan=lifespan)
    app.include_router(runs)
    app.include_router(health)
    return app
