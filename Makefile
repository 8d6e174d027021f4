# SPDX-License-Identifier: MIT
# A front to meson and ninja. `make` alone lists what there is.

BUILD ?= build
PREFIX ?= /usr/local
ROOT_CMD = $(shell [ "$$(id -u)" = 0 ] || echo sudo)

PACKAGES = build-essential meson ninja-build pkg-config clang python3 \
	libblkid-dev liburing-dev liblz4-dev libzstd-dev libxxhash-dev libjansson-dev \
	libcmocka-dev scdoc
# Programs that the tests run under uswap, where they are small; others are used where they are there.
TEST_PACKAGES = redis-server redis-tools sqlite3 stress-ng strace gdb fakeroot faketime libjemalloc2 \
	bubblewrap musl-tools libcap2-bin nginx-light xz-utils zstd mariadb-server-core mariadb-client-core \
	libtcmalloc-minimal4 libmimalloc2.0 gcc-multilib

.PHONY: help deps build demo test soak bench install clean

help:
	@echo 'make deps     install the Debian packages that are missing (root or sudo)'
	@echo 'make build    build/uswap and its agent'
	@echo 'make demo     a program with several hundred MB in a third of that'
	@echo 'make test     every test: layers, unit, clang, sanitizers, end to end'
	@echo 'make soak     the same, with the end-to-end tests in their long form'
	@echo 'make bench    the figures, measured on this machine'
	@echo 'make install  below PREFIX ($(PREFIX))'
	@echo 'make clean    remove what was built'

# Asks dpkg first, so that it needs neither network nor rights when all is there.
deps:
	@if ! command -v dpkg-query >/dev/null; then \
		echo 'deps: not a Debian; needed: $(PACKAGES) $(TEST_PACKAGES)'; exit 0; \
	fi; \
	missing=; for p in $(PACKAGES) $(TEST_PACKAGES); do \
		dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || \
			missing="$$missing $$p"; \
	done; \
	if [ -n "$$missing" ]; then \
		echo "deps: installing$$missing"; \
		$(ROOT_CMD) apt-get update -qq && \
		$(ROOT_CMD) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
			--no-install-recommends $$missing; \
	fi

$(BUILD)/build.ninja:
	meson setup $(BUILD) --prefix $(PREFIX)

build: $(BUILD)/build.ninja
	@ninja -C $(BUILD)
	@ln -sfn src/cli/uswap $(BUILD)/uswap

demo: deps build
	@$(BUILD)/uswap check >$(BUILD)/check.txt || { cat $(BUILD)/check.txt; exit 125; }
	@python3 demo/demo.py $(BUILD)/uswap

test: deps build
	@python3 tests/run

soak: deps build
	@python3 tests/run --soak

bench: deps build
	@bench/figures

install: build
	meson install -C $(BUILD) --no-rebuild

clean:
	rm -rf $(BUILD) build-clang build-asan build-tsan
