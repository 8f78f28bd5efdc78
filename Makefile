# Every target makes what it needs on first use: a virtual environment in .venv, with what pyproject.toml lists for it.
# The stamps .venv/.examples, .venv/.test, .venv/.dev and .venv/.docs say what is installed; editing pyproject.toml
# renews them.
#   PYTHON=/path/to/python3   the interpreter that .venv is made from (otherwise the first good one that is found)

SHELL := /bin/sh
VENV := .venv
RUN := $(VENV)/bin/python
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check --editable
CLEAN := .venv .venv-smoke-* digits.npz digits.svg out build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache

.PHONY: help train test stress conformance check docs clean venv-matches
.NOTPARALLEL:
.DEFAULT_GOAL := help

help: ## show this list
	@echo 'usage: make TARGET [PYTHON=/path/to/python3]'
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' Makefile

train: $(VENV)/.examples ## train a small network on handwritten digits (DATA=folder of MNIST files, ARGS="--epochs 3 ...")
	@$(RUN) examples/train_digits.py $(if $(DATA),--data '$(DATA)') $(ARGS)

test: $(VENV)/.test ## all tests, with numba and without, in about 25 minutes (ARGS=--quick: in two; ARGS="-k name ...")
	@$(RUN) tools/tests.py $(ARGS)

stress: $(VENV)/.test ## kernels, signals, kills, forks, damaged files, for SECONDS=600 (ARGS="--only signals --seed 7")
	@$(RUN) -m tests.fuzz stress --seconds $(or $(SECONDS),600) $(ARGS)

conformance: $(VENV)/.test ## run PyTorch's own test databases and write docs/coverage.md (minutes; ARGS="--processes 4")
	@$(RUN) -m tests.conformance $(ARGS)

check: $(VENV)/.dev ## lint, format and types
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m mypy

docs: $(VENV)/.docs ## build the documentation into build/docs; a warning is an error
	@$(RUN) -m sphinx -b html -n -W --keep-going -q docs build/docs
	@echo 'build/docs/index.html'

clean: ## remove everything that these targets made
	rm -rf $(CLEAN)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUN):
	@sh tools/python.sh venv $(VENV) '$(PYTHON)'

$(VENV)/.examples: pyproject.toml $(RUN)
	@echo 'installing tensorgrad and what its examples need into $(VENV)'
	@$(INSTALL) '.[examples]'
	@touch $@

# torch and numba are tried by themselves, so that everything else is there where they have no wheel.
$(VENV)/.test: pyproject.toml $(RUN)
	@echo 'installing tensorgrad and what its tests need, torch among it, into $(VENV)'
	@$(INSTALL) '.[test-tools,examples,dev]'
	@$(INSTALL) '.[test]' --only-binary torch >$(VENV)/torch.log 2>&1 || \
	  echo 'torch could not be installed ($(VENV)/torch.log says why): the tests that compare with it will be skipped'
	@$(INSTALL) '.[fast]' --only-binary numba,llvmlite >$(VENV)/fast.log 2>&1 || \
	  echo 'numba could not be installed ($(VENV)/fast.log says why): the tests run with NumPy alone'
	@touch $@ $(VENV)/.examples $(VENV)/.dev

$(VENV)/.dev: pyproject.toml $(RUN)
	@echo 'installing tensorgrad, ruff and mypy into $(VENV)'
	@$(INSTALL) '.[dev]'
	@touch $@

$(VENV)/.docs: pyproject.toml $(RUN)
	@echo 'installing tensorgrad and what builds its documentation into $(VENV)'
	@$(INSTALL) '.[docs]'
	@touch $@

# A PYTHON that an existing .venv was not made from would otherwise be passed over in silence.
ifneq ($(PYTHON),)
$(RUN): | venv-matches
venv-matches:
	@sh tools/python.sh matches $(VENV) '$(PYTHON)'
endif
