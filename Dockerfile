# Both commands, static, without a shell: docker build -t headgate .
FROM golang:1.26-bookworm AS build
WORKDIR /src
ENV CGO_ENABLED=0 GOCACHE=/cache/build GOMODCACHE=/cache/mod
COPY . .
RUN --mount=type=cache,target=/cache go build -trimpath -ldflags "-s -w" -o out/ ./cmd/worker ./cmd/enqueue

# It has certificates, time zones, a user without rights, and nothing to run.
FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /src/out/ /usr/local/bin/
USER nonroot
EXPOSE 9090
# The page is for this container only until --listen has a host, and a token is set.
HEALTHCHECK --interval=10s --timeout=4s --start-period=10s CMD ["worker", "health", ":9090"]
CMD ["worker", "run", "--listen", ":9090"]
