"""The same Agent for Hayhooks: `POST /agent/run`."""

from hayhooks import BasePipelineWrapper
from hayhooks.server.logger import intercept_stdlib_logging
from starlette.datastructures import Headers

from examples.server.agent import build_agent
from examples.server.app import Question
from examples.server.model import chat_model
from examples.server.service import AgentService
from examples.server.settings import Settings
from examples.server.store import choose_store
from examples.server.streaming import RunResponse
from examples.server.users import current_user


class PipelineWrapper(BasePipelineWrapper):  # type: ignore[misc]
    """
    Returns a response, which Hayhooks passes on as it is, and not a generator: that would be left to itself when its
    response is cancelled while it writes, and closed later by another task than its own (see the README).
    """

    skip_mcp = True  # a tool's result cannot be a stream

    def setup(self) -> None:
        intercept_stdlib_logging(["examples.server", "haybaler"])  # Hayhooks shows the loggers that it is told of
        settings = Settings()
        self.pipeline = build_agent(settings, chat_model())
        self.service = AgentService(self.pipeline, choose_store(settings), settings)

    async def run_api_async(self, question: Question, headers: Headers | None = None) -> RunResponse:
        """
        Answer a question; the answer is streamed as server-sent events.

        :param question: The question.
        """
        user = await current_user(headers.get("x-user") if headers else None)
        return RunResponse(self.service.open_run(user, question))
