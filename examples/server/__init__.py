"""An Agent as a service: FastAPI or Hayhooks, with the tool results of each run in a scope of one store."""
