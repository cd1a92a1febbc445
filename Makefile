# What a newcomer needs: `make demo` shows the main job on a real Postgres, `make test` runs every suite.

PREFIX ?= /usr/local

.PHONY: all build install demo test torture-files lint clean

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

# Rewinds of files while editors save and a person and an agent go on writing: ROUNDS of each.
ROUNDS ?= 10000
torture-files:
	FORKLIFT_TORTURE_ROUNDS=$(ROUNDS) cargo test --package forklift --lib -- a_save_in_the_middle_of_an_install no_edit_is_lost_while_turns_and_rewinds_run

# What the lint suite of `make test` runs.
lint:
	cargo fmt --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --workspace --quiet

clean:
	rm -rf target .test bindings/node/forklift.node bindings/node/dist
