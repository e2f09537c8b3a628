# make demo   trains a model on MNIST with a parameter server and two workers, and says what it did
# make test   linters, import contracts and all tests
# make bench  graphrt beside TensorFlow, one table
# make protos compiles protos/graphrt/*.proto to graphrt/protos (after editing a .proto)
# make clean  removes the environment and everything that was generated
#
# Needs make and CPython 3.11 to 3.14. Each target sets up .venv itself and does that once.
# PYTHON=/path/to/python picks another interpreter, ARGS='...' is passed on to the demo, pytest or the benchmarks.

SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))
PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	if $$name -c "$(SUPPORTED)" >/dev/null 2>&1; then echo $$name; break; fi; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
PROTOC_ENV := build/protoc

.DELETE_ON_ERROR:
.PHONY: demo test lint bench protos clean

demo: $(VENV)/.installed-fast
	@$(BIN)/graphrt launch --ps 1 --workers 2 examples/mnist_replica.py $(ARGS)

# Tests of processes and deadlines share the machine with each other: one that fails is run once more, and shows as R.
test: lint
	$(BIN)/python -m pytest -q -n auto --reruns 1 $(ARGS)

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo

bench: $(VENV)/.installed-test
	$(BIN)/python -m benchmarks $(ARGS)

# A stamp file per set of extras: made again only when pyproject.toml changes.
$(VENV)/.installed-fast: pyproject.toml $(VENV)/.created
	@echo "Installing graphrt and its fast extra into $(VENV) ..."
	@$(PIP) install --editable '.[fast]'
	@touch $@

$(VENV)/.installed-test: pyproject.toml $(VENV)/.created
	@echo "Installing graphrt, the test tools and TensorFlow (where it has a wheel) into $(VENV) ..."
	@$(PIP) install --editable '.[fast,oracle,dev]'
	@touch $@ $(VENV)/.installed-fast

$(VENV)/.created:
	@test -n "$(PYTHON)" || { echo "graphrt needs CPython 3.11 to 3.14 and found none; name one: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c "$(SUPPORTED)" || { echo "graphrt needs CPython 3.11 to 3.14; $(PYTHON) is $$($(PYTHON) -V 2>&1)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# grpcio-tools of that age has wheels for CPython 3.11 and 3.12; its version stands in protos/generate.py.
protos: $(PROTOC_ENV)/.created
	$(PROTOC_ENV)/bin/python protos/generate.py

$(PROTOC_ENV)/.created: protos/generate.py
	@$(PYTHON) -m venv $(PROTOC_ENV)
	@$(PROTOC_ENV)/bin/python -m pip -qq --disable-pip-version-check install \
		"grpcio-tools==$$(sed -n 's/^GRPCIO_TOOLS = "\(.*\)".*/\1/p' protos/generate.py)" 'setuptools<80'
	@touch $@

clean:
	rm -rf $(VENV) build dist out graphrt.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find graphrt tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
