# Everything happens inside .venv and build/; nothing is installed globally.
#   make run     set up on first use, then show the demo
#   make test    the checks of every day; make test-long has the rest: both have to pass before a change goes in

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
BUILD  := build
LOCK   := requirements.lock
PIP    := $(BIN)/python -m pip --disable-pip-version-check

PYTEST := $(BIN)/python -m pytest -q -n 2 --dist worksteal
# the tests of `make check`
LOWER  := tests/_diagnostics tests/_numerics tests/_storage tests/exact_inference tests/families tests/inference/test_loop.py \
          tests/inference/test_methods.py tests/inference/test_stepping.py tests/kernels tests/posteriors tests/reports tests/test_architecture.py
# what the tests need besides the library and its extras
TEST_PACKAGES := beartype pytest pytest-xdist hypothesis mpmath networkx pandas dask[dataframe]

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup run check test test-long lint types imports unit docs wheel format lock lowest newest reproductions bench clean

help:
	@echo "make run      the demo"
	@echo "make check    the quickest checks, for while you work: lint, imports and the tests of the lower modules"
	@echo "make test     lint, imports, types, docs, wheel and the tests"
	@echo "make test-long   the long tests: experiments in small, fuzzers, batteries of others, kills, searches"
	@echo "make format   rewrite the sources in the house format"
	@echo "make lock     refresh $(LOCK) from pyproject.toml (LOCK_FLAGS=--upgrade moves every pin)"
	@echo "make lowest   the tests on the lowest versions that pyproject.toml allows (make newest: on the newest there are)"
	@echo "make reproductions   every experiment in full, into docs/reproductions"
	@echo "make bench    the benchmarks, which no other target runs"
	@echo "make clean    remove $(VENV), $(BUILD) and caches"

# ---------------------------------------------------------------- set-up, repeated only when its inputs change

$(VENV)/.created:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) was not found; name a Python 3.11 or newer with: make PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit("cavity needs Python 3.11 or newer, but $(PYTHON) is %d.%d; name another one with: make PYTHON=..." % v[:2] if v < (3, 11) else 0)'
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.locked: $(LOCK) $(VENV)/.created
	$(PIP) install -qq --requirement $(LOCK)
	@touch $@

$(VENV)/.installed: pyproject.toml reproductions/pyproject.toml src/cavity/_version.py $(VENV)/.locked
	$(PIP) install -qq --no-deps --no-build-isolation --editable . --editable reproductions
	$(PIP) check
	@touch $@

setup: $(VENV)/.installed

# ---------------------------------------------------------------- what people ask for

run: setup
	$(BIN)/cavity demo

check: setup
	@$(MAKE) --no-print-directory lint imports
	$(PYTEST) -m "not searching and not long" $(LOWER)

# Types, pages and wheel keep one core busy each, and go side by side.
test: setup
	@$(MAKE) --no-print-directory lint imports
	@$(MAKE) --no-print-directory -j 2 types docs wheel
	@$(MAKE) --no-print-directory unit
	@echo "All checks passed."

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: setup
	$(BIN)/basedpyright --pythonpath $(BIN)/python

imports: setup
	$(BIN)/lint-imports

unit: setup
	$(PYTEST) -m "not searching and not long"

# Most tests compile more than they run, and tests/conftest.py prefers quick compilation; long searches want quick code.
test-long: setup
	$(PYTEST) -m "long and not searching"
	OPTIMISED_CODE=1 $(PYTEST) -m searching
	@echo "All long checks passed."

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir $(BUILD)/site

# The wheel is tried where nothing else is: an empty environment, outside the source tree.
wheel: setup
	rm -rf $(BUILD)/wheel && mkdir -p $(BUILD)/wheel
	$(BIN)/python -m build --wheel --no-isolation --outdir $(BUILD)/wheel . >$(BUILD)/wheel/build.log || { cat $(BUILD)/wheel/build.log; exit 1; }
	sed -e '/^ *--hash/d' -e 's/ *\\$$//' $(LOCK) >$(BUILD)/wheel/constraints.txt
	$(BIN)/python -m venv $(BUILD)/wheel/venv
	$(BUILD)/wheel/venv/bin/python -m pip --disable-pip-version-check install -qq --no-compile --constraint $(BUILD)/wheel/constraints.txt $(BUILD)/wheel/*.whl
	cd $(BUILD)/wheel && venv/bin/python -I -c 'import cavity, pathlib; assert (pathlib.Path(cavity.__file__).parent / "py.typed").is_file()'
	cd $(BUILD)/wheel && venv/bin/cavity --help >/dev/null
	cd $(BUILD)/wheel && venv/bin/python -I ../../tests/wheel_check.py

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

lock: setup
	$(BIN)/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --fork-strategy fewest \
		--generate-hashes --no-emit-index-url --no-emit-find-links --no-header --quiet $(LOCK_FLAGS) --output-file $(LOCK)

# The tests where the dependencies are as old, or as new, as the metadata allows; the lock file has no say there.
lowest: RESOLUTION = lowest-direct
newest: RESOLUTION = highest
lowest newest: setup
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(BUILD)/$@
	$(BIN)/uv pip compile --quiet --resolution $(RESOLUTION) --extra all --no-emit-index-url --no-header --output-file $(BUILD)/$@.txt pyproject.toml
	$(BIN)/uv pip install --quiet --python $(BUILD)/$@ --requirement $(BUILD)/$@.txt
	$(BIN)/uv pip install --quiet --python $(BUILD)/$@ --constraint $(BUILD)/$@.txt $(TEST_PACKAGES)
	$(BIN)/uv pip install --quiet --python $(BUILD)/$@ --no-deps --editable . --editable reproductions
	JAX_COMPILATION_CACHE_DIR=$(CURDIR)/$(BUILD)/$@/jax-cache $(BUILD)/$@/bin/python -m pytest -q -n 2 --dist worksteal -m "not searching" \
		-W "ignore::DeprecationWarning" --ignore tests/docs

# Full runs, resumed where they stopped; their tables and figures become pages of the documentation.
reproductions: setup
	$(BIN)/cavity reproduce --all --out $(BUILD)/reproductions
	@for folder in $(BUILD)/reproductions/*/; do \
		name=$$(basename $$folder); \
		cp $$folder/table.md docs/reproductions/$$name.md; \
		cp $$folder/result.json docs/reproductions/$$name.json; \
		cp $$folder/$$name.png docs/reproductions/; \
	done
	$(BIN)/cavity reproduce record --out docs/reproductions

bench: setup
	@test -d benchmarks || { echo "There is no benchmarks/ folder in this tree."; exit 1; }
	@for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python "$$file" || exit 1; done

clean:
	rm -rf $(VENV) $(BUILD) dist site .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests reproductions -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
