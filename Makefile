.DEFAULT_GOAL := help
.PHONY: help deps test quick race fuzz sim path lint fmt bench chaos demo screenshots up

GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOTEST   := go test -count=1 -timeout 15m
CORES    := $(shell getconf _NPROCESSORS_ONLN)
SUDO     := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

# Go keeps its caches below HOME; without one they go below .cache.
ifeq ($(HOME),)
export HOME := $(CURDIR)/.cache
endif

# What a look at the sources finds. Here and below, work is all packages of all modules of go.work.
define LOOK
go vet work
@unformatted=$$(gofmt -l *.go */) && \
if [ -n "$$unformatted" ]; then echo "run make fmt for: $$unformatted" >&2; exit 1; fi
endef

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The tests start these themselves: real servers, a browser that looks at the
# page, and npm for the reader of web archives. Only what is missing is installed,
# and sudo asked for only then.
deps: ## install what the tests start, if it is missing
	@missing=; \
	command -v redis-server >/dev/null || missing="$$missing redis-server"; \
	{ command -v prometheus && command -v promtool; } >/dev/null || missing="$$missing prometheus"; \
	command -v amtool >/dev/null || missing="$$missing prometheus-alertmanager"; \
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || missing="$$missing chromium"; \
	command -v npm >/dev/null || missing="$$missing npm"; \
	$(if $(VALGRIND),command -v valgrind >/dev/null || missing="$$missing valgrind";) \
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

# Without C and paths, as the image is built: what both need is compiled once. With more
# memory, collected less often, all takes a tenth less time. The tests are vetted once, by go vet,
# which looks for more than go test does. The packages that take longest come first, or a
# core would wait for them at the end; one more than there are cores, since some wait.
test: export CGO_ENABLED = 0
test: export GOFLAGS := $(GOFLAGS) -trimpath
test: export GOGC = 300
test: deps ## vet, check the format and run all tests
	$(LOOK)
	$(GOTEST) -vet=off -p $$(($(CORES) + 1)) ./scheduler ./cmd/worker ./cmd/internal/worker ./internal/waitdb ./throttle ./bench . ./internal/fairqueue work

# What one runs while editing: all but the packages whose tests start processes, and with -short,
# which leaves out the slow tests of throttle, scheduler and lanes. Of what is left out run what is
# touched: go test ./scheduler -run 'TestX$$'.
SLOW := $(subst $() ,|,cmd/enqueue cmd/worker bench deploy dashboards dashboards/[a-z]+ examples.* internal/testutil/redistest cmd/internal/worker)
quick: export CGO_ENABLED = 0
quick: export GOFLAGS := $(GOFLAGS) -trimpath
quick: export GOGC = 300
quick: ## vet, check the format and run the tests that are quick
	$(LOOK)
	$(GOTEST) -vet=off -short $$(go list work | grep -vE '/headgate/($(SLOW))$$')

race: deps ## run all tests with the race detector
	$(GOTEST) -race work

# make test runs each target on its seeds, on 10,000 inputs made of them (internal/testutil/fuzzseed, 7 s
# of one core for all 19), and on what is kept in the package's testdata/fuzz. It does not fuzz:
# that compiles all dependencies once more, which is two minutes of one core and doubles what a
# new machine compiles, and 10 s for each target are three minutes more. What is found here is
# kept there, and tested from then on.
FUZZTIME ?= 60s
fuzz: ## fuzz what reads foreign texts, each for FUZZTIME
	@grep -rlE '^func Fuzz' --include='*_test.go' . | while read -r file; do \
		for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9]*)\(.*/\1/p' "$$file"); do \
			echo "$$file $$target" && \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 100x "$$(dirname "$$file")" || exit 1; \
		done; \
	done

SEEDS ?= 200
sim: ## simulate SEEDS random worlds, with damaged records and of forecasts too, and ten times as many of fair queuing alone
	go test -count=1 -timeout 24h -v -run 'TestSimulations$$' ./internal/fairqueue -seeds $(SEEDS)0
	go test -count=1 -timeout 24h -v -parallel 6 -run TestForecastComesTrue ./internal/waitdb -forecast-worlds $(SEEDS)
	go test -count=1 -timeout 24h -v -run 'TestSimulation$$|TestCorruption_Records$$' ./scheduler -seeds $(SEEDS)

MODULES = $$(go list -m -f '{{.Dir}}/...')
SEED ?= 1
chaos: deps ## run 35,000 jobs in worker processes with 350 faults, drawn by SEED, and judge by what an API saw
	go test -count=1 -timeout 1h -v -run 'TestChaos$$' ./cmd/worker -chaos-seed $(SEED) -chaos-jobs 35000 -chaos-faults 350

# The functions of this project that a job goes through and an idle server does not, by the
# coverage of three runs each.
path: ## count the functions on a job's way: allowed at once; denied, and granted later
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

bench: VALGRIND = 1
bench: deps ## measure against other systems
	go run ./bench

screenshots: deps ## take the pictures of the page in docs
	$(GOTEST) ./dashboards/page -run TestScreenshots -screenshots $(CURDIR)/docs

demo: ## watch 100 jobs obey a limit
	go run ./cmd/worker demo

up: ## run all that there is to try in containers
	docker compose up
