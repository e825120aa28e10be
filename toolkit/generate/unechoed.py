"""Bodies of an endpoint's side pages without the key: what they say ends in reports and in further requests. Pure."""

from __future__ import annotations

from toolkit.config import Secret
from toolkit.generate.secrecy import KeyWatch


def unechoed(body: bytes, key: Secret | None) -> bytes | None:
    """The body with the key cut out of it; None where it stands there in a form that cannot be cut out.

    As a whole and before anything is read: a name that is divided later would still hold most of a key.
    """
    watch = KeyWatch(key)
    text = body.decode("utf-8", "replace")
    hidden = watch.hide_in(text)
    if watch.finds_in_body(hidden):
        return None
    return body if hidden == text else hidden.encode()
