# One static binary on a distroless base: no shell, no package manager, not root. It writes only to
# /var/lib/sendonce, and only with SQLite; so run it with a read-only root file system:
#
#   docker run --read-only --cap-drop ALL -p 8080:8080 \
#     -v ./config.yaml:/etc/sendonce/config.yaml:ro -v ledger:/var/lib/sendonce sendonce

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o bin/sendonce ./cmd/sendonce
RUN mkdir -p empty/var/lib/sendonce

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /src/bin/sendonce /sendonce
COPY --from=build --chown=65532:65532 /src/empty/var/lib/sendonce /var/lib/sendonce
USER 65532:65532
VOLUME /var/lib/sendonce

# 8080 is the public listener. The operations listener, 9090, must not be published. If ops_listen is not port
# 9090 on loopback or on every interface, the health check needs "-addr", "HOST:PORT" or
# "-config", "/etc/sendonce/config.yaml", here or in the orchestrator (as a list; there is no shell).
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=4s --start-period=30s CMD ["/sendonce", "health"]
ENTRYPOINT ["/sendonce"]
CMD ["serve", "-config", "/etc/sendonce/config.yaml"]
