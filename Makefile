.DEFAULT_GOAL := help
.PHONY: help test race sim lint fmt bench demo recording screenshots up redis-server chromium node

GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOTEST   := go test -count=1 -timeout 15m
SUDO     := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

# Go keeps its caches below HOME; without one they go below .cache.
ifeq ($(HOME),)
export HOME := $(CURDIR)/.cache
endif

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

test: redis-server chromium node ## vet, check the format and run all tests
	go vet ./...
	@unformatted=$$(gofmt -l *.go */) && \
	if [ -n "$$unformatted" ]; then echo "run make fmt for: $$unformatted" >&2; exit 1; fi
	$(GOTEST) ./...

race: redis-server chromium node ## run all tests with the race detector
	$(GOTEST) -race ./...

SEEDS ?= 200
sim: ## simulate SEEDS random worlds: who gives turns alone, and then the whole
	go test -count=1 -timeout 24h -v -run 'TestSimulations$$' ./internal/turns -seeds $(SEEDS)
	go test -count=1 -timeout 24h -v -run 'TestSimulation$$' ./scheduler -seeds $(SEEDS)

lint: ## run golangci-lint
	go run $(GOLANGCI) run ./...

fmt: ## format the code
	go run $(GOLANGCI) fmt ./...

bench: redis-server ## measure against other systems
	go run ./bench

screenshots: redis-server chromium ## take the pictures of the page in docs
	$(GOTEST) ./dashboards/page -run TestScreenshots -screenshots $(CURDIR)/docs

demo: ## watch 200 jobs obey a limit
	go run ./cmd/worker demo

recording: redis-server ## record worker demo as docs/demo.svg
	@bin=$$(mktemp -d) && trap 'rm -r "$$bin"' EXIT && \
	go build -o "$$bin" ./cmd/worker && \
	PATH="$$bin:$$PATH" go run ./internal/recording docs/demo.svg worker demo

up: ## run Redis and a worker in containers
	docker compose up

# The tests start redis-server themselves. Only where it is missing is anything
# installed, and sudo asked for.
redis-server:
	@if command -v redis-server >/dev/null; then \
		:; \
	elif command -v apt-get >/dev/null && { [ "$$(id -u)" = 0 ] || command -v sudo >/dev/null; }; then \
		$(SUDO) apt-get update && \
		$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends redis-server; \
	elif command -v brew >/dev/null; then \
		brew install redis; \
	else \
		echo "install redis-server 6.2 or newer and run make again" >&2; exit 1; \
	fi

# The tests of the page open it in a Chromium.
chromium:
	@if command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; then \
		:; \
	elif command -v apt-get >/dev/null && { [ "$$(id -u)" = 0 ] || command -v sudo >/dev/null; }; then \
		$(SUDO) apt-get update && \
		$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium; \
	elif command -v brew >/dev/null; then \
		brew install --cask chromium; \
	else \
		echo "install chromium and run make again" >&2; exit 1; \
	fi

# npm's warcio reads the archives that a test writes.
node:
	@if command -v npm >/dev/null; then \
		:; \
	elif command -v apt-get >/dev/null && { [ "$$(id -u)" = 0 ] || command -v sudo >/dev/null; }; then \
		$(SUDO) apt-get update && \
		$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends nodejs npm; \
	elif command -v brew >/dev/null; then \
		brew install node; \
	else \
		echo "install Node.js 18 or newer and run make again" >&2; exit 1; \
	fi
