"""A small OAuth authorization server: metadata, dynamic registration, authorization codes with PKCE, and keys. It asks no
one: whoever asks for a code gets it. Never one for real use.

    GET /requests    the parameters of the requests so far, as JSON
    GET /made?aud=…  a token for this audience, as text
"""

import argparse
import base64
import hashlib
import json
import secrets
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlencode, urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

KEY = ec.generate_private_key(ec.SECP256R1())


def encode(data):
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def number(value):
    return encode(value.to_bytes(32, "big"))


def token(issuer, audience):
    claims = {"iss": issuer, "aud": audience, "sub": "ann", "exp": int(time.time()) + 600}
    message = f"{encode({'alg': 'ES256', 'kid': 'one', 'typ': 'JWT'})}.{encode(claims)}"
    r, s = decode_dss_signature(KEY.sign(message.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{message}.{encode(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


class Authorization(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    codes, requests = {}, []

    def do_GET(self):
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        point = KEY.public_key().public_numbers()
        jwk = {"kty": "EC", "crv": "P-256", "kid": "one", "use": "sig", "x": number(point.x), "y": number(point.y)}
        metadata = {
            "issuer": self.issuer,
            "jwks_uri": f"{self.issuer}/jwks",
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
        }
        if url.path == "/authorize":
            code = secrets.token_urlsafe()
            self.codes[code] = query
            self.requests.append({"endpoint": "authorize", **query})
            back = {"code": code, "state": query["state"]}
            return self.answer(302, "", location=f"{query['redirect_uri']}?{urlencode(back)}")
        answers = {
            "/health": {},
            "/.well-known/oauth-authorization-server": metadata,
            "/.well-known/openid-configuration": metadata,
            "/jwks": {"keys": [jwk]},
            "/requests": self.requests,
            "/made": token(self.issuer, query.get("aud", "")),
        }
        return self.answer(200, answers[url.path]) if url.path in answers else self.answer(404, "")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        if self.path == "/register":
            return self.answer(201, {**json.loads(body), "client_id": "the-client", "token_endpoint_auth_method": "none"})
        asked = dict(parse_qsl(body))
        self.requests.append({"endpoint": "token", **asked})
        code = self.codes.pop(asked.get("code"), None)
        challenge = encode(hashlib.sha256(asked.get("code_verifier", "").encode()).digest())
        if code is None or code["code_challenge"] != challenge or code["redirect_uri"] != asked["redirect_uri"]:
            return self.answer(400, {"error": "invalid_grant"})
        made = {"access_token": token(self.issuer, asked["resource"]), "token_type": "Bearer", "expires_in": 600}
        return self.answer(200, {**made, "scope": code.get("scope", "")})

    @property
    def issuer(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, status, body, **headers):
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Authorization).serve_forever()
