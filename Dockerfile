# An image with both commands and no shell: docker build -t headgate .
FROM golang:1.26-bookworm AS build
WORKDIR /src
ENV CGO_ENABLED=0 GOCACHE=/cache/build GOMODCACHE=/cache/mod
COPY . .
RUN --mount=type=cache,target=/cache go build -trimpath -ldflags "-s -w" -o out/ ./cmd/worker ./cmd/enqueue

# This base image has certificates, time zones and a user without rights, and no programs.
FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /src/out/ /usr/local/bin/
USER nonroot
EXPOSE 9090
# Only this container reaches the page until --listen names a host and HEADGATE_PAGE_TOKEN is set.
HEALTHCHECK --interval=10s --timeout=4s --start-period=10s CMD ["worker", "health", ":9090"]
CMD ["worker", "run", "--listen", ":9090"]
