"""From a URL to a store: the scheme names an entry point, the entry point names the class."""

from importlib.metadata import EntryPoint, entry_points

from haybaler.errors import ConfigurationError
from haybaler.stores.protocol import ToolResultStore
from haybaler.stores.url import scheme_of

GROUP = "haybaler.stores"

# What to install for the schemes that come with an extra of haybaler's own.
_EXTRAS = {"file": "filesystem", "redis": "redis", "rediss": "redis", "unix": "redis", "s3": "s3"}


def store_from_url(url: str) -> ToolResultStore:
    """
    Build a store from a URL, such as `memory://` or `file:///var/lib/results?references=relative`.

    Any installed distribution can bring schemes: each entry point in the group `haybaler.stores` is named like its
    scheme and points at a class with a class method `from_url`.

    :param url: The URL. Which options may follow `?` is documented with each class.
    :returns: The store.
    :raises ConfigurationError: If no installed class serves the scheme, or the class refuses the URL. Credentials are
        never part of the text.
    """
    scheme = scheme_of(url)
    entry = _entry_point(scheme)
    try:
        store_class = entry.load()
    except Exception as error:
        raise ConfigurationError(f"The store for {scheme}:// cannot be imported from {entry.value}.") from error
    if not callable(getattr(store_class, "from_url", None)):
        raise ConfigurationError(f"{entry.value} has no class method `from_url`, so {scheme}:// cannot be used.")
    store: ToolResultStore = store_class.from_url(url)
    return store


def _entry_point(scheme: str) -> EntryPoint:
    installed = entry_points(group=GROUP)
    # One distribution may be found twice, for example as an editable install and as a folder on the path.
    candidates = {entry.value: entry for entry in installed if entry.name == scheme}
    if not candidates:
        known = ", ".join(sorted({f"{entry.name}://" for entry in installed})) or "none"
        source = f"haybaler[{_EXTRAS[scheme]}]" if scheme in _EXTRAS else "the distribution that brings it"
        raise ConfigurationError(f"No store for {scheme}:// is installed; installed: {known}. Install {source}.")
    if len(candidates) > 1:
        raise ConfigurationError(f"Several classes claim {scheme}://: {', '.join(sorted(candidates))}.")
    return next(iter(candidates.values()))
