"""Run the server: `python -m examples.server`."""

import logging

import uvicorn

from examples.server.app import create_app
from examples.server.settings import Settings

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    settings = Settings()
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        timeout_graceful_shutdown=settings.shutdown_grace,  # then uvicorn cancels the streams that are still open
    )
