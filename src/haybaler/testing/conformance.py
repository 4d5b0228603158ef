"""The whole kit in one class."""

from haybaler.testing.batches import BatchLaws
from haybaler.testing.content import ContentLaws
from haybaler.testing.inventory import InventoryLaws
from haybaler.testing.keys import KeyLaws
from haybaler.testing.lifecycle import LifecycleLaws
from haybaler.testing.limits import LimitLaws
from haybaler.testing.pipelines import PipelineLaws
from haybaler.testing.scopes import ScopeLaws
from haybaler.testing.wholeness import WholenessLaws


class StoreConformance(
    ContentLaws, WholenessLaws, KeyLaws, BatchLaws, LifecycleLaws, PipelineLaws, ScopeLaws, InventoryLaws, LimitLaws
):
    """
    Every law of a store. Subclass it, name the subclass `Test...`, and override the fixture `make_store`.

    A store without asynchronous methods of its own needs nothing special. For a store that only has those, and one
    that does not outlive its instance, it looks like this:

    ```python
    class TestRemoteStore(StoreConformance):
        supports_sync = False
        durable = False

        @pytest.fixture
        def make_store(self) -> MakeStore:
            return RemoteStore
    ```

    Override `damage` and `unavailable` where there is something to damage or to take away, and `limited` for a store
    whose entries have a time to live or a largest size.
    """
