"""A URL that cannot be a store's is refused with the right error, which has no part of a credential in it."""

import traceback
from typing import Any

import pytest
from tests.hostile.case import each
from tests.hostile.corpus_urls import SECRET, URLS

from haybaler import store_from_url
from haybaler.errors import ConfigurationError


@each(URLS)
def test_a_url_that_means_nothing_is_refused_and_no_credential_is_told(case: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        store_from_url(case.value)
    told = "".join(traceback.format_exception(caught.value.__class__, caught.value, None))
    assert SECRET not in told
    assert len(str(caught.value)) < 1_000
    assert str(caught.value).isprintable()
