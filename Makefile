# The daily commands; `make help` lists them. `run` and `test` do all their set-up themselves on a bare Debian 12.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build
MAKEFLAGS += --no-print-directory

MODEL ?= resnet18
THREADS ?= $(shell nproc)
# For `make bench`: the tables, one or two a paper; every Nth line of each; a Python that has numpy and onnxruntime.
BENCH_OPS ?= korch mcfuser_gemm_chains mcfuser_attention gensor_scaled alt dietcode mirage
BENCH_EVERY ?= 3
BENCH_THREADS ?= 1
PYTHON ?= python3
BENCH_MODELS ?= mlp resnet18 mobilenet_v2 bert_tiny bert_small
FUZZ_SECONDS ?= 600
FUZZ_MUTANTS ?= 20000
FUZZ_SEED := $(or $(FUZZ_SEED),$(shell date +%s)00000)
LINT_SINCE ?= HEAD~1
PREFIX ?= /usr/local
TSAN_TESTS ?= ^(base|runtime|program|cost|schedule|backend_cpu|tune|orchestrate|model|compile|driver)$$
# One compiler a core, and no more than memory holds (1.5 GB each: LLVM's headers).
JOBS ?= $(shell awk -v cores=$$(nproc) '/^MemAvailable/ {n = int($$2 / 1500000)} \
    END {if (n < 1) n = 1; print n < cores ? n : cores}' /proc/meminfo)

TILEWRIGHT := build/bin/tilewright
CTEST := ctest --output-on-failure --no-tests=error --timeout 1800 -j $(JOBS)

## build: set up, configure and build everything (Release, in build/)
.PHONY: build
build: setup build/build.ninja
	@cmake --build build -j $(JOBS)

## run: build the tool alone, then write the zoo's MODEL=resnet18, run it and time it
.PHONY: run
run: tool
	@mkdir -p build/run
	$(TILEWRIGHT) zoo $(MODEL) -o build/run/$(MODEL).onnx
	$(TILEWRIGHT) run build/run/$(MODEL).onnx --threads $(THREADS) --output-dir build/run/out
	$(TILEWRIGHT) bench build/run/$(MODEL).onnx --threads $(THREADS) --iterations 20

.PHONY: tool
tool: setup build/build.ninja
	@cmake --build build -j $(JOBS) --target tilewright

## test: build, then run every test; ends with ctest's summary
.PHONY: test gpu-tools
test: gpu-tools build
	@$(CTEST) --test-dir build

# CMake looks for what is there when it configures.
gpu-tools: setup
	@scripts/gpu_tools.sh build
	@if [ -f build/build.ninja ] && [ build/venv/gpu_tools -nt build/build.ninja ]; then cmake --preset release; fi

## torch-test: install PyTorch (2 GB, build/torch) and run the tests of torch.compile(backend="tilewright")
.PHONY: torch-test torch-bench
torch-test: build
	@scripts/torch_env.sh build
	@cd python/tests && PYTHONPATH=../../build/python TILEWRIGHT_TOOL=../../$(TILEWRIGHT) PYTHONDONTWRITEBYTECODE=1 \
	    ../../build/torch/bin/python -m unittest test_torch

## torch-bench: the same, and time 13 models beside eager and Inductor (TORCH_BENCH=options of bench/torch_compile.py)
torch-bench: build
	@scripts/torch_env.sh build
	@PYTHONPATH=build/python build/torch/bin/python bench/torch_compile.py $(TORCH_BENCH)

## aarch64-test: build the runtime library for AArch64 and run models that are compiled for it, in qemu
.PHONY: aarch64-test
aarch64-test: build
	@scripts/setup.sh aarch64
	@scripts/aarch64.sh build

# LLVM sets a signal stack of its own in threads that link, which AddressSanitizer would free: use_sigaltstack=0.
## asan: every test under AddressSanitizer and UndefinedBehaviorSanitizer
.PHONY: asan
asan: setup-tools build-asan/build.ninja
	@cmake --build build-asan -j $(JOBS)
	@ASAN_OPTIONS=$${ASAN_OPTIONS:-detect_stack_use_after_return=1:use_sigaltstack=0} UBSAN_OPTIONS=$${UBSAN_OPTIONS:-print_stacktrace=1} \
	    LSAN_OPTIONS=$${LSAN_OPTIONS:-suppressions=$(CURDIR)/scripts/leaks.txt} \
	    TILEWRIGHT_RANDOM_PROGRAMS=$${TILEWRIGHT_RANDOM_PROGRAMS:-200} \
	    $(CTEST) --timeout 3000 --test-dir build-asan

# Left out: sweeps that compile and run kernels on one thread, which would take hours.
TSAN_FILTER ?= -TypeSweep.*:Small/*:Zoo/*:All/*:Codegen*:*Cases*:AnnotatedCode.*
## tsan: the tests that run threads (TSAN_TESTS) under ThreadSanitizer
.PHONY: tsan
tsan: setup-tools build-tsan/build.ninja
	@cmake --build build-tsan -j $(JOBS)
	@TSAN_OPTIONS="$${TSAN_OPTIONS:-halt_on_error=1:suppressions=$(CURDIR)/scripts/races.txt}" \
	    TILEWRIGHT_RANDOM_PROGRAMS=$${TILEWRIGHT_RANDOM_PROGRAMS:-80} GTEST_FILTER='$(TSAN_FILTER)' \
	    $(CTEST) --timeout 3000 --test-dir build-tsan -R '$(TSAN_TESTS)'

## fuzz: FUZZ_MUTANTS=20000 changed models and random programs, hostile models, each fuzz target for FUZZ_SECONDS=600
.PHONY: fuzz
fuzz: setup-tools build build-fuzz/build.ninja
	@echo "fuzz: $(FUZZ_MUTANTS) mutants from seed $(FUZZ_SEED); those that fail go to build-fuzz/findings/mutants"
	@TILEWRIGHT_MUTANTS=$(FUZZ_MUTANTS) TILEWRIGHT_MUTANT_SEED=$(FUZZ_SEED) \
	    TILEWRIGHT_MUTANT_FINDINGS=build-fuzz/findings/mutants build/bin/tool_test --gtest_filter='Mutants.*'
	@TILEWRIGHT_LONG_TESTS=1 build/bin/tool_test --gtest_filter='Hostile*'
	@TILEWRIGHT_RANDOM_PROGRAMS=$(FUZZ_MUTANTS) build/bin/model_test --gtest_filter='*RandomPrograms'
	@cmake --build build-fuzz -j $(JOBS)
	@scripts/fuzz.sh build-fuzz $(FUZZ_SECONDS)

## lint: layout of all sources; clang-tidy over those changed since LINT_SINCE=HEAD~1 (ALL=1: over all)
.PHONY: lint
lint: setup-tools
	@scripts/lint.sh $(if $(ALL),--all,--since $(LINT_SINCE))

## format: lay the sources out with clang-format
.PHONY: format
format: setup-tools
	@scripts/lint.sh --format

## check: the rules about sources that `make test` also checks: include graph, sizes, paths, documents' words and links
.PHONY: check
check: setup
	@python3 scripts/check_includes.py
	@python3 scripts/check_sources.py

## bench: products against the FMA peak, BENCH_MODELS, then a table of operators for each paper, beside other libraries
.PHONY: bench
bench: build
	@scripts/setup.sh bench || echo "going on without the libraries to compare with"
	@cmake --preset release >build/bench_configure.log
	@cmake --build build -j $(JOBS)
	@build/bin/bench_gemm
	@mkdir -p build/bench
	@for model in $(BENCH_MODELS); do \
	    $(TILEWRIGHT) zoo $$model -o build/bench/$$model.onnx; \
	    $(TILEWRIGHT) bench build/bench/$$model.onnx --threads $(THREADS) --json build/bench/$$model.json; \
	done
	@$(PYTHON) bench/ops.py $(BENCH_OPS:%=bench/ops/%.txt) --every $(BENCH_EVERY) --threads $(BENCH_THREADS) \
	    --seconds 0.05 --json build/bench/ops.jsonl

# The layouts that ALT's figure 9 compares; `make paper-alt ALT="joint ppo rule"` takes 1,000 measurements an operator, days.
ALT = joint rule none
# Options of bench/alt.py, bench/gensor.py and bench/mcfuser.py.
ALT_MODELS ?=
GENSOR ?=
MCFUSER ?=
PAPER_PYTHON ?= build/venv/bin/python
PAPER := PYTHONPATH=build/python PYTHONDONTWRITEBYTECODE=1 $(PAPER_PYTHON)

.PHONY: paper-peers
paper-peers: build
	@if [ $(PAPER_PYTHON) = build/venv/bin/python ]; then scripts/peers_env.sh build; fi
	@mkdir -p build/bench

## paper-alt: ALT's figures 9 (layouts of ALT="joint rule none") to 12 (ALT_MODELS=options of bench/alt.py), tables 2 and 3
.PHONY: paper-alt
paper-alt: paper-peers
	@echo "Figure 9; paper, 40 cores of a Xeon Gold 6248: ALT over Torch 9.5, AutoTVM 9.9, FlexTensor 9.8, Ansor 1.6"
	@$(PAPER) bench/ops.py bench/ops/alt.txt --schedulers auto --layouts $(ALT) --threads $(THREADS) \
	    --peers onnxruntime openvino --json build/bench/alt.jsonl
	@$(PAPER) bench/alt.py --threads $(THREADS) $(ALT_MODELS) --json build/bench/alt_models.json
	@echo "Figure 11: layouts between two convolutions are converted, or those of the first or of the second one;" \
	    "paper: conversion is faster than both (an image), and takes 8 us"
	@$(PAPER) bench/ops.py bench/ops/alt.txt --match conv_chain --schedulers auto --threads $(THREADS) \
	    --layouts joint joint:fp joint:bp joint:wp --peers --json build/bench/alt_propagation.jsonl
	@build/bin/bench_layouts

## paper-gensor: Gensor's figures 10 to 12 and table VI (GENSOR="--batch 8 --budget 0": options of bench/gensor.py)
.PHONY: paper-gensor
paper-gensor: paper-peers
	@$(PAPER) bench/gensor.py --threads $(THREADS) $(GENSOR) --json build/bench/gensor.json

## paper-mcfuser: MCFuser's figures 2, 8 and 9, table IV and ablations (MCFUSER="--every 3": options of bench/mcfuser.py)
.PHONY: paper-mcfuser
paper-mcfuser: paper-peers
	@$(PAPER) bench/mcfuser.py --threads $(THREADS) $(MCFUSER) --json build/bench/mcfuser.json

## paper-dietcode: DietCode's figures 15 to 19: one search for all sizes, one for each, and the default plan
.PHONY: paper-dietcode
paper-dietcode: paper-peers
	@$(PAPER) bench/dietcode.py --each --form relative published --json build/bench/dietcode.json

## charts: draw docs/charts/ from the kept results in bench/results/
.PHONY: charts
charts:
	@$(PYTHON) bench/charts.py

## replay: hash every kernel of the zoo, of bench/ops and of SUITE's models; says which differ from bench/replay.txt
.PHONY: replay replay-update
replay: tool
	@$(PYTHON) scripts/replay.py --check $(if $(SUITE),--suite $(SUITE))

## replay-update: the same, and keep the hashes in bench/replay.txt and the texts in build/replay
replay-update: tool
	@$(PYTHON) scripts/replay.py $(if $(SUITE),--suite $(SUITE))

## tutorial-update: run the commands of docs/tutorial.md and write what they print into it
.PHONY: tutorial-update
tutorial-update: tool
	@$(PYTHON) scripts/tutorial.py --update

## golden-update: write what passes and refusals print into src/compile/golden/ and src/tool/must_fail/
.PHONY: golden-update
golden-update: setup build/build.ninja
	@cmake --build build -j $(JOBS) --target compile_test tool_test
	@TILEWRIGHT_UPDATE_GOLDEN=1 build/bin/compile_test --gtest_brief=1 --gtest_filter='Golden.*'
	@TILEWRIGHT_UPDATE_GOLDEN=1 build/bin/tool_test --gtest_brief=1 --gtest_filter='*MustFail*'
	@git status --short src/compile/golden src/tool/must_fail || true

## install: install the tool, the library and its CMake package under PREFIX=/usr/local
.PHONY: install
install: build
	@cmake --install build --prefix $(PREFIX)

## package: build/package/: an archive, a package of Debian, the wheel and the source distribution of the Python package
.PHONY: package
package: build
	@cd build && cpack
	@scripts/wheel.sh build
	@build/venv/bin/python -c "import scikit_build_core.build as b; b.build_sdist('build/package')"
	@ls build/package

## clean: remove build/ and the build folders of asan, tsan and fuzz
.PHONY: clean
clean:
	@rm -rf build build-asan build-tsan build-fuzz

## setup: install the Debian packages that are missing (scripts/packages.txt); quick when none is
.PHONY: setup setup-tools
setup:
	@scripts/setup.sh build
setup-tools:
	@scripts/setup.sh build tools

## help: this list
.PHONY: help
help:
	@sed -n 's/^## \([a-z-]*\): \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do \
	    printf '  make %-15s %s\n' "$$name" "$$text"; \
	done

# Ninja configures again by itself when a CMake file changes; this is the first time.
build/build.ninja: | setup
	@scripts/python_env.sh build
	@cmake --preset release
build-asan/build.ninja: | setup-tools
	@cmake --preset asan
build-tsan/build.ninja: | setup-tools
	@cmake --preset tsan
build-fuzz/build.ninja: | setup-tools
	@cmake --preset fuzz
