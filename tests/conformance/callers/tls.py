"""Client certificates with the official Python client of OpenAI, over HTTP/1.1 and HTTP/2.

The script makes its own certificates, and starts a gateway of its own that asks for them.
"""

import datetime
import ipaddress
import os
import pathlib
import socket
import ssl
import subprocess
import tempfile
import time

import httpx
import openai
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from checks import check, close

CONFIG = """
[server]
listen = "127.0.0.1:{port}"
tls = {{ cert = "cert.pem", key = "key.pem", client_ca = "clients.pem" }}

[store]
kind = "memory"

[auth]
certificates = {{ caller = "san_uri" }}

[callers."spiffe://example.com/guest"]
agents = []

[agents.demo]
upstream = {{ protocol = "demo" }}

[[routes]]
protocol = "responses"
path = "/v1"
auth = ["certificates"]
"""

FOLDER = pathlib.Path(tempfile.mkdtemp(dir="."))


class Authority:
    """Signs certificates."""

    def __init__(self, name):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = self.signed(self.name, self.key, [(x509.BasicConstraints(True, None), True)])

    def signed(self, subject, key, extensions):
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self.name)
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(hours=1))
        builder = builder.not_valid_after(now + datetime.timedelta(days=1))
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self.key, hashes.SHA256())

    def issue(self, file, names, usage):
        """Writes a certificate and its key, and returns their paths."""
        key = ec.generate_private_key(ec.SECP256R1())
        extensions = [(x509.SubjectAlternativeName(names), False), (x509.ExtendedKeyUsage([usage]), False)]
        certificate = self.signed(x509.Name([]), key, extensions)
        paths = FOLDER / f"{file}cert.pem", FOLDER / f"{file}key.pem"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        form, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, none))
        return paths

    def write(self, file):
        path = FOLDER / file
        path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        return path


def client_certificate(authority, name):
    uri = x509.UniformResourceIdentifier(f"spiffe://example.com/{name}")
    return authority.issue(f"{name}-", [uri], ExtendedKeyUsageOID.CLIENT_AUTH)


servers, clients = Authority("servers"), Authority("clients")
servers.issue("", [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))], ExtendedKeyUsageOID.SERVER_AUTH)
root, _ = servers.write("root.pem"), clients.write("clients.pem")
ann, bob, guest = (client_certificate(clients, name) for name in ("ann", "bob", "guest"))
foreign = client_certificate(Authority("others"), "foreign")

with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
(FOLDER / "gateway.toml").write_text(CONFIG.format(port=port))
URL = f"https://localhost:{port}"


def without_key(request):
    """The certificate is the only credential: the key that the client insists on is not sent."""
    del request.headers["authorization"]


def http_client(certificate, http2, **more):
    context = ssl.create_default_context(cafile=root)
    if certificate:
        context.load_cert_chain(*certificate)
    return httpx.Client(verify=context, http2=http2, timeout=30, **more)


def client(certificate, http2):
    one = http_client(certificate, http2, event_hooks={"request": [without_key]})
    return openai.OpenAI(base_url=f"{URL}/v1", api_key="unused", http_client=one, max_retries=0)


def ask(certificate, http2):
    return client(certificate, http2).responses.create(model="demo", input="hello there")


def raises(kind, status, function):
    try:
        function()
    except kind as error:
        assert type(error) is kind, type(error)
        assert error.status_code == status, error.status_code
        assert error.request_id, "no request id"
        return error
    raise AssertionError(f"no {kind.__name__}")


log = open(FOLDER / "log", "w")
command = [os.environ["INTERLINGUA"], "serve", "--config", "gateway.toml"]
gateway = subprocess.Popen(command, cwd=FOLDER, stdout=log, stderr=log)
try:
    deadline = time.monotonic() + 20
    while True:
        try:
            assert http_client(None, False).get(f"{URL}/readyz").status_code == 200
            break
        except httpx.TransportError:
            assert time.monotonic() < deadline and gateway.poll() is None, (FOLDER / "log").read_text()
            time.sleep(0.05)

    for http2 in (False, True):
        version = "HTTP/2" if http2 else "HTTP/1.1"

        def over(sentence, version=version):
            return check(f"openai, {version}: {sentence}")

        @over("a certificate is accepted, also for a stream")
        def _(http2=http2, version=version):
            one = client(ann, http2)
            answer = one.responses.with_raw_response.create(model="demo", input="hello there")
            assert answer.http_response.http_version == version, answer.http_response.http_version
            assert answer.parse().status == "completed"
            events = list(one.responses.create(model="demo", input="hello there", stream=True))
            assert events[-1].type == "response.completed", events[-1]

        @over("several requests share a connection")
        def _(http2=http2):
            one = client(ann, http2)
            streams = [one.responses.create(model="demo", input=f"echo {n}", stream=True) for n in range(5)]
            for number, stream in enumerate(streams):
                assert list(stream)[-1].response.output_text == str(number)

        @over("without a certificate it is an AuthenticationError")
        def _(http2=http2):
            error = raises(openai.AuthenticationError, 401, lambda: ask(None, http2))
            assert error.code == "invalid_api_key", error.body
            assert "www-authenticate" in error.response.headers

        @over("a certificate without rights is a PermissionDeniedError")
        def _(http2=http2):
            raises(openai.PermissionDeniedError, 403, lambda: ask(guest, http2))

        @over("what belongs to another is a NotFoundError")
        def _(http2=http2):
            made = ask(ann, http2)
            assert client(ann, http2).responses.retrieve(made.id).id == made.id
            raises(openai.NotFoundError, 404, lambda: client(bob, http2).responses.retrieve(made.id))

        @over("a certificate of another authority gets no connection")
        def _(http2=http2):
            try:
                ask(foreign, http2)
            except openai.APIConnectionError:
                return
            raise AssertionError("it was accepted")
finally:
    gateway.terminate()
    gateway.wait(20)

close()
