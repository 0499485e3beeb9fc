# Everything a developer does with the repository, each as one target; "make help" lists them.
# Every target does its own set-up and costs nothing when that is done already.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
PYTHON := $(VENV)/bin/python
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

SOAK_SECONDS := 1800

CORE_SOURCES = $(wildcard core/src/*.[chS] core/src/agent/*.[chS] core/include/*.h)
C_FILES = $(shell find core tests bench -name '*.[ch]' 2>/dev/null)

.PHONY: help setup test lint core-tests core-tests-threads core-tests-aarch64 pytest demo oracle oracle-aarch64 proof stack-proof perf-proof record-proof live-proof program-proof soak fuzz-smoke bench bench-stack bench-overhead bench-import bench-viewer bench-walk format clean
.PHONY: run-packages test-packages

help: ## List the targets
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 28

setup: test-packages $(VENV)/.development $(VENV)/.unspool ## Install what building and testing need (system packages too, when root)

test: lint core-tests core-tests-threads core-tests-aarch64 pytest ## Run every check: lint, types, the core's tests, the Python tests

demo: run-packages $(VENV)/.unspool ## Print the stacks of a running server; record a program, draw its flame graph
	@$(PYTHON) examples/server_stacks.py
	@$(PYTHON) examples/flame_graph.py

lint: setup ## Check style, types, formatting and the direction of imports
	ruff check
	ruff format --check
	mypy src
	clang-format-19 --dry-run --Werror $(C_FILES)
	lint-imports

core-tests: setup ## Run the core's unit tests under ASan and UBSan
	@$(call core_tests,sanitize)

core-tests-threads: setup ## Run the tests that have threads under ThreadSanitizer
	cmake --preset threads >/dev/null
	cmake --build build/threads -j 2 --target test_session_ring test_growing_table
	ctest --test-dir build/threads --output-on-failure --no-tests=error -R '^test_(session_ring|growing_table)$$'

core-tests-aarch64: setup ## Cross-compile the core and run its unit tests under qemu-user
	@$(call core_tests,aarch64)

pytest: setup ## Run the Python tests
	$(PYTHON) -m pytest

oracle: setup ## Single-step programs, compare every stack with the true one, write docs/exactness.md
	$(PYTHON) -m tests.oracle.peers out/oracle/peers.json
	$(PYTHON) -m tests.oracle --jobs 2 --write-docs

oracle-aarch64: setup ## The same for aarch64 programs in an emulator; musl's need zig, which this installs
	$(PYTHON) -m pip install -q --group oracle
	$(PYTHON) -m tests.oracle.aarch64 --write-docs

proof: setup ## Compare unwind tables with readelf's rows, and symbols with llvm-symbolizer's, in many real files
	$(PYTHON) -m tests.proof.readelf_proof
	$(PYTHON) -m tests.proof.symbol_proof

stack-proof: setup ## Compare the stacks of real servers with gdb's
	@scripts/system-packages stack-proof
	$(PYTHON) -m tests.proof.stack_proof

perf-proof: setup ## Look at every stack of real recordings of perf
	@scripts/system-packages stack-proof
	$(PYTHON) -m tests.proof.perf_proof --json out/oracle/perf.json

record-proof: setup ## Compare the shares of time in recordings with what programs measure themselves
	$(PYTHON) -m tests.proof.record_proof

live-proof: setup ## Compare the shares of time by perf events with those from inside, of real programs
	@scripts/system-packages stack-proof
	$(PYTHON) -m tests.proof.live_proof --write-docs

program-proof: setup ## Record real servers and programs, tell how many stacks are complete, write docs/programs.md
	@scripts/system-packages stack-proof
	$(PYTHON) -m tests.proof.program_proof --write-docs

soak: setup ## Record a mixed C++ and Rust program at 1 kHz for SOAK_SECONDS (30 minutes): no crash, hang or leak
	$(PYTHON) -m tests.battery.soak $(SOAK_SECONDS)

import-proof: setup ## Compare imports of real recordings of perf with perf script
	@scripts/system-packages stack-proof
	$(PYTHON) -m tests.proof.import_proof

fuzz-smoke: setup ## Fuzz every parser for 72 seconds in all
	cmake --preset fuzz >/dev/null
	cmake --build build/fuzz -j 2
	scripts/fuzz 48
	$(PYTHON) -m tests.fuzz.elf 12
	$(PYTHON) -m tests.fuzz.perf 12

bench: setup ## Measure how fast tables are built and stacks are walked
	$(PYTHON) bench/run.py

bench-stack: setup ## Measure unspool stack beside gdb, eu-stack and pystack
	$(PYTHON) bench/stack.py

bench-overhead: setup ## Measure what being recorded costs a program, beside perf and py-spy
	$(PYTHON) -m bench.handler
	$(PYTHON) -m bench.overhead

bench-walk: setup ## Measure how fast stacks are walked beside other unwinders, write it to bench/README.md
	@scripts/system-packages stack-proof
	$(PYTHON) -m bench.walk --write-docs

bench-import: setup ## Measure unspool import beside perf script
	@scripts/system-packages stack-proof
	$(PYTHON) bench/import.py

bench-viewer: setup ## Measure how fast the flame graph with 100,000 stacks is in Chromium
	$(PYTHON) bench/viewer.py

format: setup ## Format all Python and C files
	ruff check --fix
	ruff format
	clang-format-19 -i $(C_FILES)

clean: ## Remove what was built (the virtual environment too)
	rm -rf build out $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

# ---------------------------------------------------------------- set-up

run-packages:
	@scripts/system-packages run

test-packages:
	@scripts/system-packages test

$(VENV)/.build: pyproject.toml | run-packages
	@[ -x $(PYTHON) ] || "$$(scripts/system-packages python)" -m venv $(VENV)
	$(PYTHON) -m pip install -q --upgrade 'pip>=25.1'
	$(PYTHON) -m pip install -q --group build
	@touch $@

$(VENV)/.development: $(VENV)/.build
	$(PYTHON) -m pip install -q --group development
	@touch $@

# The package in place: Python files from src/, the library built anew when the core changes.
$(VENV)/.unspool: $(VENV)/.build CMakeLists.txt src/unspool/core_interface.py $(CORE_SOURCES)
	$(PYTHON) -m pip install -q --no-build-isolation -C cmake.define.UNSPOOL_WARNINGS_AS_ERRORS=ON -e .
	@touch $@

define core_tests
cmake --preset $(1) >/dev/null
cmake --build build/$(1) -j 2
ctest --test-dir build/$(1) --output-on-failure --no-tests=error
endef
