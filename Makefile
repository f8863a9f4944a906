# headrace: every check that CI runs is a target here. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo prepare-demo docs test quick check bench wheel soak clean format prepare servers fake-gcs minio venv deps build \
        cpp-tests python-tests lint tidy types asan tsan fuzz torch-smoke wheel-test

STAGE := tools/stage.sh
PYTHON := .venv/bin/python
.NOTPARALLEL:
JOBS ?= $(shell nproc)
export CCACHE_MAXSIZE ?= 5G
# A run may have three unsteady tests (tools/unsteady.py); several calls of make are one run if they share this.
ifndef HEADRACE_RUN
export HEADRACE_RUN := $(shell date +%s%N)
endif
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---- what everything needs

prepare:  ## all of the below, the servers and .venv while the engine is compiled
	@tools/prepare.sh

prepare-demo:
	@echo "The first time, this installs Debian packages and PyTorch (5.6 GB) and compiles the engine, which"
	@echo "takes a few minutes. What is there already is left out; then the demo starts within seconds."
	@tools/prepare.sh demo

deps:  ## install the Debian packages of tools/apt-packages.txt (sudo if you are not root)
	@$(STAGE) deps tools/apt.sh

venv: deps  ## make .venv with everything that constraints/python.txt pins
	@$(STAGE) venv tools/venv.sh .venv constraints/python.txt

servers: deps  ## build fake-gcs-server, MinIO and AIStore, which the tests run against
	@$(STAGE) servers tools/servers.sh fake-gcs-server minio aisnode

fake-gcs: deps  ## build fake-gcs-server alone, for the demo and the wheel
	@$(STAGE) servers tools/servers.sh fake-gcs-server

minio: deps  ## build MinIO alone, for the demo
	@$(STAGE) servers tools/servers.sh minio

build: venv  ## build the release preset: engine, tests, fault server, Python module
	@$(STAGE) build tools/build.sh release

# ---- the main job

demo: $(if $(filter gs s3,$(STORE)),build,prepare-demo) $(if $(filter gs,$(STORE)),fake-gcs) $(if $(filter s3,$(STORE)),minio)  ## train from objects, stop, resume: in a folder, or STORE=gs, STORE=s3 (DEMO="--help" is passed on)
	@$(STAGE) demo tools/demo.sh $(or $(STORE),file) $(DEMO)

docs: venv  ## the documentation as a site in build/docs; every public name must be in it
	@$(STAGE) docs tools/docs.sh

# ---- tests

test: prepare cpp-tests python-tests  ## everything a change must pass first: C++ and Python tests

quick: build  ## four minutes: the C++ tests and the Python tests of what everything else stands on
	@$(STAGE) cpp-tests tools/ctest.sh release
	@$(STAGE) quick-tests tools/pytest.sh --quick

ifeq ($(origin LAYER),command line)
ifneq ($(MAKECMDGOALS),cpp-tests)
$(error LAYER is for `make cpp-tests` alone)
endif
cpp-tests:
	@$(STAGE) deps tools/apt.sh build
	@$(STAGE) layer-build tools/build.sh release-engine headrace_$(LAYER)_test
	@$(STAGE) layer-tests tools/ctest.sh release -L '^$(LAYER)$$'
else
cpp-tests: build  ## the C++ tests of the release preset; LAYER=base builds and runs those of one layer alone, in a minute
	@$(STAGE) cpp-tests tools/ctest.sh release
endif

python-tests: build servers  ## the Python tests, three at a time, against real servers (PYTEST="-k name" narrows)
	@$(STAGE) python-tests tools/pytest.sh --all $(PYTEST)

# ---- checks

check: lint types docs asan tsan fuzz tidy wheel-test torch-smoke  ## lint, types, docs, sanitizers, short fuzz, wheel, torch versions

format: venv  ## apply clang-format and ruff format
	@tools/format.sh

lint: venv  ## formatting (fixers, then a diff), ruff, shell scripts
	@$(STAGE) lint tools/lint.sh

types: build  ## mypy on python/headrace; mypy and pyright on the programs of tests/types
	@$(STAGE) types tools/types.sh

tidy: build  ## clang-tidy over src/ and bindings/
	@$(STAGE) tidy $(PYTHON) tools/tidy.py

fault-server: deps  # what the C++ tests of every preset talk to
	@$(STAGE) build-fault-server tools/build.sh release-engine headrace-faultserver

asan: deps fault-server  ## C++ tests under AddressSanitizer and UBSan
	@$(STAGE) asan-build tools/build.sh asan
	@$(STAGE) asan tools/ctest.sh asan

tsan: deps fault-server  ## C++ tests under ThreadSanitizer
	@$(STAGE) tsan-build tools/build.sh tsan
	@$(STAGE) tsan tools/ctest.sh tsan

fuzz: deps  ## each fuzzer for FUZZ_S seconds (10)
	@$(STAGE) asan-build tools/build.sh asan
	@$(STAGE) fuzz tools/fuzz.sh $${FUZZ_S:-10}

# ---- the wheel

wheel: venv  ## dist/headrace-*.whl for Python 3.11 and for 3.12 and later, each at most 8 MB
	@$(STAGE) wheel tools/wheel.sh

wheel-test: wheel fake-gcs fault-server  ## tests of TLS with a wheel; the wheels in bare Debians 12 and 13 (debootstrap, root)
	@$(STAGE) wheel-tls tests/packaging/wheel_tls.sh
	@$(STAGE) wheel-test tests/packaging/wheel_in_debian.sh

torch-smoke: wheel fake-gcs  ## the wheel with the oldest and the newest supported torch
	@$(STAGE) torch-smoke tools/torch_smoke.sh

# ---- longer

soak: build servers  ## long campaigns: SOAK_FUZZ_S (600) per fuzzer, SOAK_EXAMPLES (500) per property, SOAK_FORKS (10000), SOAK_FAULTS (all), SOAK_KILLS (50), SOAK_FLIPS (10000), SOAK_DATAFLUX (a clone)
	@$(STAGE) asan-build tools/build.sh asan headrace_fuzzers
	@$(STAGE) servers tools/servers.sh versitygw moto s3mock
	@$(STAGE) soak tools/soak.sh

bench: build servers  ## the benchmarks of bench/ (BENCH="..." is passed on)
	@$(STAGE) bench tools/bench.sh $(BENCH)

clean:  ## remove what was built; .venv, .venvs and the compiler cache stay
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache
