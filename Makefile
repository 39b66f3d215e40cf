.DEFAULT_GOAL := help
.PHONY: help build install release image deps test quick slow race fuzz sim path lint fmt bench chaos demo screenshots up

GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOTEST   := go test -count=1 -timeout 1h
CORES    := $(shell getconf _NPROCESSORS_ONLN)
SUDO     := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

# Go keeps its caches below HOME. If HOME is not set, they are in .cache here.
ifeq ($(HOME),)
export HOME := $(CURDIR)/.cache
endif

# In go commands, work means all packages of all modules in go.work.
define CHECK
go vet work
@unformatted=$$(gofmt -l *.go */) && \
if [ -n "$$unformatted" ]; then echo "run make fmt for: $$unformatted" >&2; exit 1; fi
endef

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The version says the commit. An archive of the sources has none.
VERSION   ?= $(shell git --git-dir=$(CURDIR)/.git describe --tags --always --dirty 2>/dev/null)
PREFIX    ?= /usr/local
OUT       ?= out
DIST      ?= dist
PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
IMAGE     ?= headgate
BUILD     := CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X github.com/headgate/headgate/internal/version.linked=$(VERSION)"

build: ## build headgate-worker and headgate-enqueue in the folder OUT (out)
	$(BUILD) -o $(OUT)/headgate-worker ./cmd/worker
	$(BUILD) -o $(OUT)/headgate-enqueue ./cmd/enqueue

install: build ## build both commands and install them in PREFIX/bin (/usr/local/bin)
	@bin=$(DESTDIR)$(PREFIX)/bin; \
	if mkdir -p "$$bin" 2>/dev/null && [ -w "$$bin" ]; then as=; else as=$(SUDO); fi; \
	$$as install -d "$$bin" && $$as install -m 755 $(OUT)/headgate-worker $(OUT)/headgate-enqueue "$$bin" && \
	echo "installed headgate-worker and headgate-enqueue in $$bin" && \
	case ":$$PATH:" in *":$$bin:"*) ;; *) echo "$$bin is not in your PATH" ;; esac

release: ## build an archive of static commands for each of PLATFORMS, and their checksums, in DIST
	@rm -rf $(DIST) && for platform in $(PLATFORMS); do \
		name=headgate-$(VERSION)-$${platform%/*}-$${platform#*/} && \
		GOOS=$${platform%/*} GOARCH=$${platform#*/} $(MAKE) --no-print-directory build OUT=$(DIST)/$$name && \
		mkdir $(DIST)/$$name/deploy && cp -r LICENSE README.md docs $(DIST)/$$name && cp deploy/headgate.service $(DIST)/$$name/deploy && tar -C $(DIST) -czf $(DIST)/$$name.tar.gz $$name && rm -r $(DIST)/$$name || exit 1; \
	done; \
	cd $(DIST) && { sha256sum *.tar.gz 2>/dev/null || shasum -a 256 *.tar.gz; } | tee SHA256SUMS

image: ## build the container image IMAGE (headgate)
	docker build --build-arg VERSION=$(VERSION) -t $(IMAGE):$(or $(VERSION),latest) -t $(IMAGE):latest .
	@echo "built the image $(IMAGE):$(or $(VERSION),latest), which is $(IMAGE):latest, too"

# The tests start Redis, Prometheus, Alertmanager and a browser themselves. BENCH adds the programs that
# only the benchmarks need. sudo asks for a password only if something is missing.
deps: ## install what the tests start, if it is missing
	@missing=; \
	command -v redis-server >/dev/null || missing="$$missing redis-server"; \
	{ command -v prometheus && command -v promtool; } >/dev/null || missing="$$missing prometheus"; \
	command -v amtool >/dev/null || missing="$$missing prometheus-alertmanager"; \
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || missing="$$missing chromium"; \
	$(if $(BENCH),command -v npm >/dev/null || missing="$$missing npm"; \
	command -v valgrind >/dev/null || missing="$$missing valgrind";) \
	if [ -z "$$missing" ]; then \
		:; \
	elif command -v apt-get >/dev/null && { [ "$$(id -u)" = 0 ] || command -v sudo >/dev/null; }; then \
		$(SUDO) apt-get update && \
		$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $$missing; \
	elif command -v brew >/dev/null; then \
		brew install $$(echo "$$missing" | sed 's/redis-server/redis/; s/prometheus-alertmanager/alertmanager/; s/npm/node/'); \
	else \
		echo "install$$missing and run make again" >&2; exit 1; \
	fi

# The settings are those of the Dockerfile, so that Go compiles each package once for both. GOGC=300 saves
# a tenth of the time. go vet has checked the tests already, so go test does not. The slowest packages
# come first, so that no core idles at the end. Some tests wait, so two more packages run than there
# are cores.
test: export CGO_ENABLED = 0
test: export GOFLAGS := $(GOFLAGS) -trimpath
test: export GOGC = 300
test: deps ## vet, check the format and run all tests
	$(CHECK)
	$(GOTEST) -vet=off -p $$(($(CORES) + 2)) ./scheduler ./cmd/worker ./dashboards/page ./cmd/internal/worker ./internal/waitdb ./tasks ./internal/fairqueue ./bench ./cmd/internal/config ./throttle . work

# For use while editing: SLOW are the packages whose tests start processes, and -short skips slow tests.
# Run the skipped tests of what you change yourself: go test ./scheduler -run 'TestX$$'.
SLOW := $(subst $() ,|,cmd/enqueue cmd/worker bench deploy dashboards dashboards/[a-z]+ examples.* internal/testutil/redistest cmd/internal/worker)
quick: export CGO_ENABLED = 0
quick: export GOFLAGS := $(GOFLAGS) -trimpath
quick: export GOGC = 300
quick: ## vet, check the format and run the quick tests
	$(CHECK)
	$(GOTEST) -vet=off -short $$(go list work | grep -vE '/headgate/($(SLOW))$$')

# The packages whose tests start processes run on a machine that is too small (internal/testutil/stall).
# Of ./scheduler only some tests do. The others run in virtual time, which no stall reaches.
PROCESSES = redistest\.(Run|Real|Both|Clocked)|exec\.Command|proctest\.Process|clitest\.Run
STALLED   = $$(grep -rlE --include='*_test.go' '$(PROCESSES)' */ | xargs -n 1 dirname | sort -u | grep -v '^scheduler$$' | sed 's,^,./,')
slow: export CGO_ENABLED = 0
slow: export GOFLAGS := $(GOFLAGS) -trimpath
slow: deps ## run the tests that start processes beside two burners, with a random third of the processes frozen at a time
	@folder=$$(mktemp -d) && trap 'rm -r $$folder' EXIT && go build -o $$folder/stall ./internal/testutil/stall && \
	$(GOTEST) -vet=off -p 1 -exec "$$folder/stall -seed $(SEED)" $(STALLED) && \
	$(GOTEST) -vet=off -p 1 -exec "$$folder/stall -seed $(SEED)" ./scheduler -run 'TestCluster|TestSentinel|TestShards_RealCluster|TestOutage'

race: deps ## run all tests with the race detector
	$(GOTEST) -race work

# make test runs each fuzz target on its seeds, on 10,000 inputs made from them (internal/testutil/fuzzseed)
# and on the inputs in testdata/fuzz. It does not fuzz, because fuzzing compiles all dependencies
# again. An input that fails here is stored in testdata/fuzz, so make test runs it from then on.
FUZZTIME ?= 60s
fuzz: ## fuzz each parser of foreign input for FUZZTIME
	@grep -rlE '^func Fuzz' --include='*_test.go' . | while read -r file; do \
		for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9]*)\(.*/\1/p' "$$file"); do \
			echo "$$file $$target" && \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 100x "$$(dirname "$$file")" || exit 1; \
		done; \
	done

SEEDS ?= 200
sim: ## simulate SEEDS random worlds of the whole stack, of damaged records and of forecasts, and ten times as many of the fair queue
	go test -count=1 -timeout 24h -v -run 'TestSimulations$$' ./internal/fairqueue -seeds $(SEEDS)0
	go test -count=1 -timeout 24h -v -parallel 6 -run TestForecastComesTrue ./internal/waitdb -forecast-worlds $(SEEDS)
	go test -count=1 -timeout 24h -v -run 'TestSimulation$$|TestCorruption_Records$$' ./scheduler -seeds $(SEEDS)

MODULES = $$(go list -m -f '{{.Dir}}/...')
SEED ?= 1
chaos: deps ## run 35,000 jobs with 350 faults, which SEED chooses, and judge by the calls that an API received
	go test -count=1 -timeout 1h -v -run 'TestChaos$$' ./cmd/worker -chaos-seed $(SEED) -chaos-jobs 35000 -chaos-faults 350

# The coverage of three runs tells which functions run for a job and not in an idle server.
path: ## count the functions that run for a job that is allowed at once, and for one that is denied and granted
	@counted=$$(mktemp -d) && for job in Idle Allowed Denied; do \
		for run in 1 2 3; do \
			go test -count=1 ./scheduler -run "TestPath$$job$$" -coverprofile=$$counted/profile \
				-coverpkg=./scheduler/...,./throttle,./lua,./internal/... >$$counted/log || { cat $$counted/log; exit 1; }; \
			go tool cover -func=$$counted/profile; \
		done | awk '!/redistest/ && $$3 != "0.0%" { sub(/:[0-9]+:$$/, "", $$1); print $$1, $$2 }' | sort -u >$$counted/$$job; \
	done; \
	for job in Allowed Denied; do echo "$$job: $$(comm -13 $$counted/Idle $$counted/$$job | wc -l)"; done; rm -r $$counted

lint: ## run golangci-lint
	go run $(GOLANGCI) run $(MODULES)

fmt: ## format the code
	go run $(GOLANGCI) fmt $(MODULES)

bench: BENCH = 1
bench: deps ## measure against other systems
	go run ./bench

screenshots: deps ## take the pictures of the page that docs/ shows
	$(GOTEST) ./dashboards/page -run TestScreenshots -screenshots $(CURDIR)/docs

demo: ## watch 100 jobs under a limit
	go run ./cmd/worker demo

up: ## run Redis, workers, Prometheus and Grafana in containers
	docker compose up
