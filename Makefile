# What a newcomer needs: `make demo` shows the main job on a real Postgres, `make test` runs every suite.

PREFIX ?= /usr/local

.PHONY: all build install demo test torture torture-files fuzz lint bench-store bench-scale clean

all: build

# The command line and the keeper beside it.
build:
	cargo build --package forklift --package forklift-cli

# Both programs, optimised, into PREFIX/bin (below DESTDIR, for packages).
install:
	cargo build --release --package forklift --package forklift-cli
	install -d "$(DESTDIR)$(PREFIX)/bin"
	install -m 755 target/release/forklift target/release/forklift-keeper "$(DESTDIR)$(PREFIX)/bin"

# Both tables of the invoicing demo. INVOICE_AMOUNTS="50 125 40" are the amounts it starts from.
demo:
	python3 tests/setup.py demo
	python3 tests/e2e/invoicing/demo --forklift target/debug/forklift

# Every suite; ends with one line: N passed, N failed, N skipped.
test:
	python3 tests/run.py

# The store under power cuts, failing and full disks, kills and damage, for MINUTES; needs root for the disks. Prints counts.
MINUTES ?= 15
torture:
	python3 tests/torture/run.py --minutes $(MINUTES)

# Rewinds of files while editors save and a person and an agent go on writing: ROUNDS of each.
ROUNDS ?= 10000
torture-files:
	FORKLIFT_TORTURE_ROUNDS=$(ROUNDS) cargo test --package forklift --lib -- a_save_in_the_middle_of_an_install no_edit_is_lost_while_turns_and_rewinds_run

# Every fuzz target of the store's parsers, SECONDS each; needs a nightly compiler.
SECONDS = 60
fuzz:
	python3 fuzz/run.py $(SECONDS)

# 100,000 refs, 1,000,000 files in one folder, 1,000,000 chunks: times and memory. About 8 GB and 10 minutes.
bench-scale:
	cargo run --release --package forklift-tests --bin bench-scale

# What the lint suite of `make test` runs.
lint:
	cargo fmt --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --workspace --quiet

# The store beside restic, borg, a shadow Git repository and `cp -a`: a table here and in target/bench-store.md. ROUNDS=n (5), SMALL=1 for a
# trial of a minute; more in tests/bench/store/run.py. As root it installs restic and borg where they are missing.
bench-store:
	python3 tests/bench/store/run.py

clean:
	rm -rf target .test bindings/node/forklift.node bindings/node/dist
