# The server in a small image that runs as nobody. Build: docker build -t radiosonde .
ARG RUST=1.95-slim-bookworm
ARG DEBIAN=12.12-slim

FROM rust:${RUST} AS builder
ENV CARGO_PROFILE_RELEASE_INCREMENTAL=false \
    CARGO_PROFILE_RELEASE_STRIP=debuginfo
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --release --bin radiosonde \
    && install -D target/release/radiosonde /out/usr/local/bin/radiosonde
# The folders that the server writes to, owned by its user, so that fresh volumes are too.
RUN install -d -o 65532 -g 65532 /out/var/cache/radiosonde /out/var/lib/radiosonde

FROM debian:${DEBIAN}
COPY --from=builder /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=builder /out/ /
# 0.0.0.0 inside the container: what is published outside is the business of whoever runs it.
ENV RADIOSONDE_HOST=0.0.0.0 \
    RADIOSONDE_CACHE=/var/cache/radiosonde \
    RADIOSONDE_INCIDENTS=/var/lib/radiosonde/incidents \
    RADIOSONDE_LOG_FORMAT=json
USER 65532:65532
EXPOSE 30000 30001
VOLUME ["/var/cache/radiosonde", "/var/lib/radiosonde"]
STOPSIGNAL SIGTERM
# Readiness, answered in a millisecond from the last verdict. The start period covers fetching and loading the model.
HEALTHCHECK --interval=5s --timeout=3s --retries=3 --start-period=10m --start-interval=2s \
    CMD ["radiosonde", "healthcheck", "--url", "http://127.0.0.1:30001/readyz"]
ENTRYPOINT ["radiosonde"]
