.DEFAULT_GOAL := help
.PHONY: help test race sim lint fmt bench demo up servers

GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOTEST   := go test -count=1 -timeout 15m
SUDO     := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

# Go keeps its caches below HOME; without one they go below .cache.
ifeq ($(HOME),)
export HOME := $(CURDIR)/.cache
endif

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-6s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

test: servers ## vet, check the format and run all tests
	go vet ./...
	@unformatted=$$(gofmt -l *.go */) && \
	if [ -n "$$unformatted" ]; then echo "run make fmt for: $$unformatted" >&2; exit 1; fi
	$(GOTEST) ./...

race: servers ## run all tests with the race detector
	$(GOTEST) -race ./...

SEEDS ?= 200
sim: ## simulate SEEDS random worlds: who gives turns alone, and then the whole
	go test -count=1 -timeout 24h -v -run 'TestSimulations$$' ./internal/turns -seeds $(SEEDS)
	go test -count=1 -timeout 24h -v -run 'TestSimulation$$' ./scheduler -seeds $(SEEDS)

lint: ## run golangci-lint
	go run $(GOLANGCI) run ./...

fmt: ## format the code
	go run $(GOLANGCI) fmt ./...

bench: servers ## measure against other systems
	go run ./bench

demo: ## watch 200 jobs obey a limit
	go run ./cmd/worker demo

up: ## run Redis and a worker in containers
	docker compose up

# The tests start redis-server and prometheus themselves. Only where one of them is
# missing is anything installed, and sudo asked for.
servers:
	@if command -v redis-server >/dev/null && command -v prometheus >/dev/null && command -v promtool >/dev/null; then \
		:; \
	elif command -v apt-get >/dev/null && { [ "$$(id -u)" = 0 ] || command -v sudo >/dev/null; }; then \
		$(SUDO) apt-get update && \
		$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends redis-server prometheus; \
	elif command -v brew >/dev/null; then \
		brew install redis prometheus; \
	else \
		echo "install redis-server 6.2 or newer, and prometheus, and run make again" >&2; exit 1; \
	fi
