"""What an operator sets: environment variables that begin with HAYBALER_."""

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """
    The settings of one server process.

    :param store_url: Where tool results go, as for `haybaler.store_from_url`; a secret, since it may hold a password.
        None: a Redis on this machine if there is one when the server starts, otherwise files.
    :param context_window: The model's context window, in tokens.
    :param max_runs: The most runs at a time; further requests are refused with status 503.
    :param run_timeout: Seconds after which a run is ended.
    :param shutdown_grace: Seconds that open streams have to end by themselves when the server shuts down.
    :param host: The address to listen on.
    :param port: The port to listen on.
    """

    model_config = SettingsConfigDict(env_prefix="HAYBALER_", env_ignore_empty=True, frozen=True)

    store_url: SecretStr | None = None
    context_window: PositiveInt = 128_000
    max_runs: PositiveInt = 100
    run_timeout: PositiveFloat = 300.0
    shutdown_grace: NonNegativeInt = 10
    host: str = "127.0.0.1"
    port: int = 8000
