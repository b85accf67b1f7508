# `make` alone says what there is. The work is done by CMake (CMakePresets.json) and tools/setup.sh.

# Which build of libtorch, cpu or cuda: build, demo, test, bench and report follow, in a folder of its own.
TORCH ?= cpu
TORCH_PREFIX ?=
BUILD = $(if $(filter cuda,$(TORCH)),build-cuda,build)
JOBS ?= $$(nproc)
SOURCES = $(shell find pareprop cli bench tests examples python -name '*.h' -o -name '*.cpp' | sort)

# An empty environment (env -i) has no PATH, and ccache and python3 -m venv fail without one.
PATH ?= /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH TORCH TORCH_PREFIX
configure_flags = $(if $(TORCH_PREFIX),-UTorch_DIR -DCMAKE_PREFIX_PATH=$(TORCH_PREFIX))

# OpenMP threads that wait for each other spin for milliseconds. Where others want the cores too (ctest
# -j2, a shared machine), steps of small models were seen to take ten times as long and more. The program
# sets this itself; the programs of tests and benchmarks do not.
export GOMP_SPINCOUNT ?= 2000

# So that a second clone takes from ccache what the first one compiled.
export CCACHE_BASEDIR ?= $(CURDIR)
export CCACHE_NOHASHDIR ?= true

# gcc's ThreadSanitizer cannot start where addresses are randomised over more than 28 bits.
no_aslr := $(shell setarch -R true 2>/dev/null && echo setarch -R)

.DEFAULT_GOAL := help
.PHONY: help setup build demo test bench bench-peers bench-frontier bench-growth report report-png format format-check tidy asan asan-quick tsan cuda-check clean reconfigure python

help: ## What there is
	@echo "make TARGET [JOBS=N] [TORCH=cuda] [TORCH_PREFIX=/path/to/libtorch]"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16
	@echo "To install after a build: cmake --install $(BUILD) --prefix DIR"

setup: ## Debian packages and libtorch (in .venv, or .venv-cuda), where they are missing
	@tools/setup.sh

# Configured once: ninja itself calls CMake again when a CMakeLists.txt changes.
build/build.ninja build-cuda/build.ninja build-asan/build.ninja build-tsan/build.ninja: CMakePresets.json \
    $(if $(TORCH_PREFIX),reconfigure) | setup
	cmake --preset $(or $(patsubst build-%/,%,$(filter build-%,$(dir $@))),release) $(configure_flags)
	@touch $@

build: $(BUILD)/build.ninja ## Everything: libraries, the program build/pareprop, tests
	cmake --build $(BUILD) --parallel $(JOBS)

demo: $(BUILD)/build.ninja ## The program, then what it can show in a minute
	cmake --build $(BUILD) --parallel $(JOBS) --target pareprop_program
	$(BUILD)/pareprop demo --out $(BUILD)/demo

# More at a time than cores: tests of signals and time-outs mostly wait.
test: build ## Everything, then all tests
	ctest --test-dir $(BUILD) --output-on-failure -j$$(( $(JOBS) + 1 ))

# In a build folder of its own, which takes from ccache what the other one compiled: by a compiler of the same name.
python: setup ## The package for Python, installed into .venv with the program pareprop
	CC=cc CXX=c++ .venv/bin/python -m pip install --no-build-isolation --no-deps --disable-pip-version-check -C build-dir=build-python .

bench: $(BUILD)/build.ninja ## The micro-benchmarks
	cmake -DPAREPROP_BUILD_BENCH=ON $(configure_flags) $(BUILD)
	cmake --build $(BUILD) --parallel $(JOBS)
	@set -e; for program in $(BUILD)/bench/*_bench; do echo "$$program"; "$$program"; done

# PEERS="--rows 'vit_*' --precisions fp32" chooses; PEERS=--help says what there is. Stopped, it goes on where it was.
PEERS_PYTHON ?= .venv/bin/python
bench-peers: build/build.ninja ## A race with PyTorch on the same networks: hours, on an idle machine
	cmake --preset release -DPAREPROP_BUILD_BENCH=ON $(configure_flags)
	cmake --build build --parallel $(JOBS) --target peers_worker peers_meter
	$(PEERS_PYTHON) bench/peers/run.py $(PEERS)

# FRONTIER="--rows 'swin_*' --precisions bf16" chooses, as PEERS does.
bench-frontier: build/build.ninja ## Throughput against memory, ours beside PyTorch's own knobs: hours, on an idle machine
	cmake --preset release -DPAREPROP_BUILD_BENCH=ON $(configure_flags)
	cmake --build build --parallel $(JOBS) --target peers_worker peers_meter peers_plot
	$(PEERS_PYTHON) bench/peers/run.py --frontier $(FRONTIER)

bench-growth: build/build.ninja ## How cost grows with depth, batch and tokens: a table, and plots in docs/plots
	cmake --preset release -DPAREPROP_BUILD_BENCH=ON $(configure_flags)
	cmake --build build --parallel $(JOBS) --target bench_growth
	build/bench/bench_growth docs/plots

# Stopped, it goes on where it was; SWEEP= names another set.
SWEEP ?= bench/report/sweep.json
report: $(BUILD)/build.ninja ## The benchmark page of a set that takes under half an hour, in build/report
	cmake --build $(BUILD) --parallel $(JOBS) --target pareprop_program
	@mkdir -p $(BUILD)/report
	$(BUILD)/pareprop bench --sweep $(SWEEP) --out $(BUILD)/report/results.jsonl
	$(BUILD)/pareprop report $(BUILD)/report/results.jsonl --out $(BUILD)/report/report.html

report-png: ## The plots of that page as PNG, in build/report/plots (Debian's chromium and chromium-driver)
	tools/report_png.py build/report/report.html build/report/plots

format: setup ## Format all sources
	@clang-format -i $(SOURCES)

format-check: setup ## Fail when a source is not formatted
	@clang-format --dry-run -Werror $(SOURCES)

# Only configured: clang cannot read the precompiled headers of gcc.
tidy: setup ## clang-tidy over all sources
	cmake --preset release -B build-tidy -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON $(configure_flags)
	tools/tidy.sh build-tidy $(JOBS)

# The test programs are run by the build too (to list their cases), so both need the options.
asan asan-quick: export ASAN_OPTIONS = detect_stack_use_after_return=1:strict_string_checks=1
asan asan-quick: export LSAN_OPTIONS = suppressions=$(CURDIR)/tools/lsan.supp:print_suppressions=0
asan asan-quick: export UBSAN_OPTIONS = print_stacktrace=1
# Left out: tests that count the seconds of the program, or limit its addresses; and those that run whole networks on
# the simulated device, which takes ten times as long there: stacks and small networks on it are run.
asan: build-asan/build.ninja ## Tests without time limits under AddressSanitizer and UndefinedBehaviorSanitizer
	cmake --build build-asan --parallel $(JOBS)
	ctest --test-dir build-asan --output-on-failure -j3 -LE 'attack|timed|large'

# Rooms that handle memory themselves or read files of others.
ASAN_QUICK = text_tests draw_tests graph_tests lanes_tests memory_tests io_tests data_tests data_images_tests \
             data_text_tests ops_tests optim_tests reversible_tests random_cases_tests device_tests trace_tests models_tests
ifneq ($(shell grep -sm1 GenuineIntel /proc/cpuinfo),)
asan-quick: export MKL_CBWR = AUTO,STRICT
endif
asan-quick: build-asan/build.ninja ## The part of these tests that continuous integration runs
	cmake --build build-asan --parallel $(JOBS) --target $(ASAN_QUICK)
	printf '%s\n' $(ASAN_QUICK) | xargs -P2 -I{} sh -c 'echo {}; build-asan/tests/*/{} --gtest_brief=1 || exit 255'

tsan: export TSAN_OPTIONS = second_deadlock_stack=1
tsan: build-tsan/build.ninja ## The tests of graph and lanes, without torch, under ThreadSanitizer
	$(no_aslr) cmake --build build-tsan --parallel $(JOBS)
	$(no_aslr) ctest --test-dir build-tsan --output-on-failure -j2

cuda-check: ## All of it with libtorch for CUDA, and its tests on the CPU: needs no GPU; build-cuda/check.log
	@tools/cuda_check.sh $(JOBS)

clean: ## Remove what was built (.venv and .venv-cuda stay)
	rm -rf build build-asan build-tsan build-tidy build-cuda build-python
