# An image with both commands and no shell: make image
FROM golang:1.26-bookworm AS build
WORKDIR /src
ENV GOCACHE=/cache/build GOMODCACHE=/cache/mod
ARG VERSION
COPY . .
RUN --mount=type=cache,target=/cache make build VERSION="$VERSION"

# This base image has certificates, time zones and a user without rights, and no programs.
FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /src/out/ /usr/local/bin/
USER nonroot
EXPOSE 9090
# Only this container reaches the page until --listen names a host and HEADGATE_PAGE_TOKEN is set.
HEALTHCHECK --interval=10s --timeout=4s --start-period=10s CMD ["headgate-worker", "health", ":9090"]
CMD ["headgate-worker", "run", "--listen", ":9090"]
