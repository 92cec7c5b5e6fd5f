"""A TCP proxy between the gateway and an agent that can cut an answer in the middle of a server-sent event.

    proxy = CuttingProxy()          # listens on PROXY_ADDRESS, forwards to UPSTREAM_URL unless another is given
    proxy.cut_next(3)               # the next event stream is cut in its fourth event

URLs of the agent in what it sends (its card) are replaced by the proxy's, so that the gateway stays on this way. Not
here: any protocol.
"""

import os
import socket
import threading
import urllib.parse

from checks import UPSTREAM_URL


EVENT = b"\ndata: "


class CuttingProxy:
    def __init__(self, target=UPSTREAM_URL):
        where = urllib.parse.urlsplit(target)
        self.target = (where.hostname, where.port)
        host, port = os.environ["PROXY_ADDRESS"].rsplit(":", 1)
        self.own, self.other = f":{port}".encode(), f":{where.port}".encode()
        # Bodies keep their lengths.
        assert len(self.own) == len(self.other), "ports of different length"
        self.cuts, self.lock = [], threading.Lock()
        self.made = 0  # cuts so far
        self.listener = socket.create_server((host, int(port)))
        threading.Thread(target=self.accept, daemon=True).start()

    def cut_next(self, events):
        with self.lock:
            self.cuts.append(events)

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        try:
            agent = socket.create_connection(self.target)
        except OSError:
            client.close()
            return
        threading.Thread(target=self.upwards, args=(client, agent), daemon=True).start()
        self.downwards(agent, client)
        for end in (client, agent):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    def upwards(self, client, agent):
        try:
            while data := client.recv(65536):
                agent.sendall(data)
            agent.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def downwards(self, agent, client):
        """Forwards answers; of an event stream that is to be cut only its first events and the begin of the next one."""
        left, seen, sent = None, b"", 0
        try:
            while data := agent.recv(65536):
                data = data.replace(self.other, self.own)
                if left is None and b"text/event-stream" in data:
                    with self.lock:
                        left = self.cuts.pop(0) if self.cuts else None
                if left is not None:
                    seen += data
                    if seen.count(EVENT) > left:
                        self.made += 1
                        client.sendall(seen[sent : begin(seen, left) + len(EVENT)])
                        return
                    sent = len(seen)
                client.sendall(data)
        except OSError:
            pass


def begin(data, number):
    """Where an event begins; the first one is number 0."""
    place = -1
    for _ in range(number + 1):
        place = data.index(EVENT, place + 1)
    return place
