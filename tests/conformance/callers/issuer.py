"""A small OpenID Connect issuer: discovery, keys, and tokens for whoever asks. Never one for real use.

    GET /token?sub=ann&seconds=600&aud=agents   a token, as text
"""

import argparse
import base64
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

KEY = ec.generate_private_key(ec.SECP256R1())


def encode(data):
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def number(value):
    return encode(value.to_bytes(32, "big"))


def token(issuer, sub="ann", seconds="600", aud="agents"):
    claims = {"iss": issuer, "aud": aud, "sub": sub, "exp": int(time.time()) + int(seconds)}
    message = f"{encode({'alg': 'ES256', 'kid': 'one', 'typ': 'JWT'})}.{encode(claims)}"
    r, s = decode_dss_signature(KEY.sign(message.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{message}.{encode(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


class Issuer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        url = urlsplit(self.path)
        issuer = f"http://127.0.0.1:{self.server.server_port}"
        point = KEY.public_key().public_numbers()
        jwk = {"kty": "EC", "crv": "P-256", "kid": "one", "use": "sig", "x": number(point.x), "y": number(point.y)}
        answers = {
            "/health": lambda: {},
            "/.well-known/openid-configuration": lambda: {"issuer": issuer, "jwks_uri": f"{issuer}/jwks"},
            "/jwks": lambda: {"keys": [jwk]},
            "/token": lambda: token(issuer, **{name: values[0] for name, values in parse_qs(url.query).items()}),
        }
        answer = answers.get(url.path)
        body = answer() if answer else ""
        body = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(200 if answer else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Issuer).serve_forever()
