# What one does with this repository. Everything is built in the release profile on purpose: the heavy
# dependencies (Arrow, DataFusion) are then compiled once and serve tests and benchmarks; the demo, which
# is built without most features, shares Arrow with them, and has a DataFusion of its own. What a debug
# build would check, the tests switch on by the setting debug.check-operators.

CARGO ?= cargo
SINKS := costs vwap_5m vwap_1h vwap_24h
GO    ?= go
# Where tests look for servers that are built for them.
TOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tidemill/bin
# The newest version that Go 1.26 builds.
MINIO_VERSION := v0.0.0-20260212201848-7aac2a2c5b7c

.PHONY: help build demo test lint doc bench reference minio clean-demo

help:
	@echo "make demo       build, run the VWAP job on a million generated trades, show what it wrote"
	@echo "make test       all tests"
	@echo "make lint       formatting and clippy"
	@echo "make doc        the API documentation, without warnings"
	@echo "make bench      the benchmarks"
	@echo "make reference  write docs/reference.md anew"
	@echo "make minio      build the server of the tests over S3 (needs Go, some minutes, once)"

build:
	$(CARGO) build --release -p tidemill

# The demo needs neither connectors that are built from C nor the network: without their features it is built much sooner.
demo: clean-demo
	$(CARGO) build --release -p tidemill --no-default-features
	@echo
	$(CARGO) run --release --quiet -p tidemill --no-default-features -- run examples/vwap/demo.sql
	@for sink in $(SINKS); do \
	  echo; \
	  set -- demo-output/$$sink/part-*.csv; \
	  echo "demo-output/$$sink: $$(cat "$$@" | wc -l) rows in $$# files; the last rows of the first:"; \
	  tail -n 3 "$$1" | sed 's/^/  /'; \
	done

clean-demo:
	rm -rf demo-output

# Tests whose servers, tools or data are missing say so; what they said stands once more at the end. Root has the
# databases and drivers of Debian installed first; DATABASE_INSTALL=0 leaves the machine as it is.
test: export DATABASE_INSTALL ?= 1
test:
	@list=$$(mktemp); \
	TIDEMILL_NOT_RUN=$$list $(CARGO) test --workspace --release; result=$$?; \
	echo; \
	if [ $$result -ne 0 ]; then echo "tests FAILED"; elif [ -s $$list ]; then echo "all tests that could run passed:"; else echo "all tests passed"; fi; \
	sort -u $$list; rm -f $$list; exit $$result

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --release -- -D warnings

# The release profile shares its check of the dependencies with clippy.
doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --release

bench: build
	benches/run.sh

minio: $(TOOLS)/minio

$(TOOLS)/minio:
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) $(GO) install github.com/minio/minio@$(MINIO_VERSION)

reference:
	$(CARGO) run --release --quiet -p tidemill -- reference > docs/reference.md.new
	mv docs/reference.md.new docs/reference.md
