# Everything runs in .venv, which the first call makes. `make help` lists the targets.
SHELL := /bin/sh
PYTHON ?= $(shell for p in python3.11 python3 python python3.12 python3.13; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install --quiet
PYTEST_ARGS ?=
PYTHONS ?= $(PYTHON)
WORKERS := -n auto --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help venv demo test masks docs changes wheels sanitize clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(VENV)/.test ## make .venv with everything that developing needs

demo: $(VENV)/.demo ## build a plan for a trained model, run it, compare it with ONNX Runtime
	$(PY) examples/digits/demo.py

test: $(VENV)/.test ## all tests, linters and type checks
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m pytest $(WORKERS) $(PYTEST_ARGS)

masks: $(VENV)/.test ## the tests that depend on the processor again, as older ones run them
	$(PY) tests/masks.py $(WORKERS)

docs: $(VENV)/.docs ## the documents as a site in build/site; a warning is an error
	$(PY) -m mkdocs build --strict

changes: $(VENV)/.docs ## what the next release will say, of the files in docs/changes
	$(PY) -m towncrier build --draft --version next

wheels: $(VENV)/.test ## the wheels of a release in dist, each installed alone under PYTHONS='python3.11 python3.12 ...' and used
	$(PY) tests/release/release_wheels.py --out dist --check $(PYTHONS)

sanitize: $(VENV)/.test ## the tests of every CUDA kernel under NVIDIA's compute-sanitizer (needs a GPU and the CUDA toolkit)
	$(PY) tests/gpu/sanitize.py

clean: ## remove what make and the tools have made
	rm -rf $(VENV) .demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info core/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Some systems ship Python without ensurepip: then the pip that is there fills the environment from outside.
$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "tactix needs Python 3.11 or newer; set PYTHON=/path/to/python"; exit 1; }
	@echo "making $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv --clear $(VENV) >/dev/null 2>&1 || { $(PYTHON) -m venv --clear --without-pip $(VENV) && \
		$(PYTHON) -m pip --disable-pip-version-check --python $(PY) install --quiet pip; }
	@touch $@

# Without a C compiler the wheel of the `compiler` extra brings one; without that, too, the numpy tactics do the work.
$(VENV)/.base: pyproject.toml setup.py $(VENV)/.made
	@echo "installing tactix"
	@$(PIP) --editable .
	@for c in cc gcc clang; do command -v $$c >/dev/null 2>&1 && exit 0; done; \
		echo "no C compiler on this machine: installing one from PyPI (ziglang)"; \
		$(PIP) --editable '.[compiler]' || echo "that failed: going on without a compiler"
	@touch $@

$(VENV)/.demo: $(VENV)/.base
	@$(PIP) 'onnxruntime>=1.20' || echo "ONNX Runtime cannot be installed: going on without the comparison"
	@touch $@

$(VENV)/.docs: $(VENV)/.base
	@$(PIP) --editable '.[docs]'
	@touch $@

$(VENV)/.test: $(VENV)/.base
	@echo "installing what the tests need"
	@$(PIP) --editable '.[test]'
	@touch $@
