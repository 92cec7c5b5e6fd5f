"""Named checks and their counts, for all conformance scripts in Python.

    from checks import check, close

    @check("a greeting completes")
    def _():
        assert ask("hello").status == "completed"

    close()  # prints `N passed, N failed` and sets the exit code

`asyncio` functions are awaited, each in its own loop. Not here: any protocol.
"""

import asyncio
import inspect
import os
import sys
import time
import traceback

GATEWAY_URL = os.environ.get("GATEWAY_URL", "http://127.0.0.1:8080")
UPSTREAM_URL = os.environ.get("UPSTREAM_URL", "")

_passed, _failed = 0, 0


def check(sentence: str):
    """Runs the function at once and records the result under this sentence."""

    def run(function):
        global _passed, _failed
        begun = time.monotonic()
        try:
            result = function()
            if inspect.isawaitable(result):
                asyncio.run(result)
        except Exception:
            _failed += 1
            print(f"  FAILED  {sentence}", flush=True)
            traceback.print_exc(file=sys.stdout)
        else:
            _passed += 1
            print(f"  passed  {sentence} ({time.monotonic() - begun:.2f} s)", flush=True)
        return function

    return run


def close() -> None:
    print(f"{_passed} passed, {_failed} failed", flush=True)
    sys.exit(1 if _failed or not _passed else 0)
