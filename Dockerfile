# The gateway alone: one static binary, no shell, no user but its own.
#
#   docker build -t interlingua .
#   docker run -p 8080:8080 interlingua
#   docker run -p 8080:8080 -v ./gateway.toml:/etc/interlingua/gateway.toml:ro -v interlingua:/var/lib/interlingua interlingua
#
# A gateway.toml of your own has to listen on 0.0.0.0:8080 and to keep its store below /var/lib/interlingua.

FROM rust:1.95-alpine AS build
# SQLite and ring are C and assembly; alpine's libc is musl, so what is built here is static.
RUN apk add --no-cache build-base
WORKDIR /src
COPY . .
RUN cargo build --profile dist --locked --package interlingua --bin interlingua \
 && ! readelf --dynamic target/dist/interlingua | grep NEEDED
# The shipped configuration, with a public listen address and its store in the volume. Its routes have no authentication:
# publish the port only where every caller may use the agents.
RUN mkdir -p /image/usr/local/bin /image/etc/interlingua /image/var/lib/interlingua \
 && cp target/dist/interlingua /image/usr/local/bin/ \
 && sed -e 's|"127.0.0.1:8080"|"0.0.0.0:8080"|' -e 's|"data/interlingua.db"|"/var/lib/interlingua/interlingua.db"|' \
        -e 's|^\[\[routes\]\]|&\nauth = "none"|' \
        gateway.toml > /image/etc/interlingua/gateway.toml \
 && grep -q '"0.0.0.0:8080"' /image/etc/interlingua/gateway.toml \
 && grep -q '"/var/lib/interlingua/' /image/etc/interlingua/gateway.toml \
 && chown -R 65532:65532 /image/var/lib/interlingua

FROM scratch
COPY --from=build /image/ /
# Upstreams over HTTPS are checked against these.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
USER 65532:65532
WORKDIR /var/lib/interlingua
VOLUME /var/lib/interlingua
EXPOSE 8080
STOPSIGNAL SIGTERM
# The binary is its own health check, since there is nothing else in the image.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 \
    CMD ["/usr/local/bin/interlingua", "health", "http://127.0.0.1:8080/healthz"]
ENTRYPOINT ["/usr/local/bin/interlingua"]
CMD ["serve", "--config", "/etc/interlingua/gateway.toml"]
