import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Agent(BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = request["input"][-1]["content"][0]["text"]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for word in f"You said: {text}".split():
            self.send({"object": "content", "type": "text", "delta": True, "text": word + " "})
        self.send({"object": "response", "status": "completed"})

    def send(self, frame):
        self.wfile.write(b"data: " + json.dumps(frame).encode() + b"\n\n")


ThreadingHTTPServer(("127.0.0.1", 8090), Agent).serve_forever()
