"""Changes the configuration of the gateway under test and makes it read it again.

    with replace_in_config("an agent", "another agent"):
        ...  # the running gateway has the change

The suite's `gateway.toml` needs `[admin]` with `console = false` and `listen = "127.0.0.1:0"`. Uses only the standard
library. Not here: any protocol.
"""

import contextlib
import pathlib
import re
import urllib.request


def reload():
    log = pathlib.Path("gateway.log").read_text()
    address = re.search(r"operators find metrics and state at ([^ ]+): ", log).group(1)
    key = pathlib.Path(re.search(r"the admin key of this start is in (\S+)", log).group(1)).read_text().strip()
    headers = {"content-type": "application/json", "host": address, "authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"http://{address}/api/reload", b"{}", headers, method="POST")
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200, answer.read()


@contextlib.contextmanager
def replace_in_config(old, new):
    """Replaces a text while the block runs."""
    config = pathlib.Path("gateway.toml")
    before = config.read_text()
    assert old in before, f"{old!r} is not in the configuration"
    try:
        config.write_text(before.replace(old, new))
        reload()
        yield
    finally:
        config.write_text(before)
        reload()
