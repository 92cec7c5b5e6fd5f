"""A receiver of push notifications that records requests and lets a test wait for them."""

import http.server
import json
import threading


class Receiver:
    """An HTTP server on a free local port. The first `refuse` requests get status 503."""

    def __init__(self, refuse=0):
        self.got = []
        self._refuse = refuse
        self._changed = threading.Condition()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                with outer._changed:
                    if outer._refuse:
                        outer._refuse -= 1
                        status = 503
                    else:
                        headers = {name.lower(): value for name, value in self.headers.items()}
                        outer.got.append((headers, json.loads(body)))
                        status = 200
                    outer._changed.notify_all()
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def wait(self, enough, seconds=20):
        """Waits until `enough(got)` holds."""
        with self._changed:
            if not self._changed.wait_for(lambda: enough(self.got), seconds):
                raise AssertionError(f"not enough came: {self.got}")
            return list(self.got)

    def close(self):
        self._server.shutdown()
