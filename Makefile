# Everything a contributor runs. `make` alone lists the targets.
#
# The first target that needs it makes .venv, with uv where there is one and with python3's own venv and pip otherwise,
# and installs what constraints.txt pins. Nothing is installed again until pyproject.toml or constraints.txt changes.

PYTHON ?= python3
WORKERS ?= 4
SEEDS ?= 1000
ARGS ?=
MINUTES ?= 10
QUICK := tests/recurrence tests/codec tests/schedules/test_plans.py tests/schedules/test_policies.py tests/queues/test_admission.py \
	tests/engine/test_replay.py tests/engine/test_retries.py tests/store/test_conformance_*.py tests/store/test_statements.py \
	tests/app/test_exports.py tests/test_layers.py

# Another Python has an environment of its own: make test PYTHON=python3.13
VENV := $(if $(filter python3,$(PYTHON)),.venv,.venv-$(notdir $(PYTHON)))
BENCH_VENV := .bench-venv
PY := $(VENV)/bin/python
APP := $(VENV)/.app-is-installed
DEV := $(VENV)/.dev-is-installed
DOCS := $(VENV)/.docs-are-installed
RELEASE := $(VENV)/.release-is-installed
PEERS := $(BENCH_VENV)/.is-installed
UV := $(shell command -v uv 2>/dev/null)

# An environment that the caller happens to be in is not the one meant here.
unexport VIRTUAL_ENV PYTHONHOME PYTHONPATH PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help simulate demo story quick test check format format-check lint layers types docs build soak random bench upgrade clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | while IFS='	' read -r name text; do \
		printf '  make %-14s %s\n' "$$name" "$$text"; done

demo: $(APP) ## a shop in your browser, at work: orders, schedules, a queue; change examples/shop.py and see it reload
	$(VENV)/bin/mainspring dev examples/shop.py $(ARGS)

story: $(APP) ## orders narrated in the terminal; stop it with ^C or kill -9, start it again, and see what it does not repeat
	$(PY) examples/demo.py $(ARGS)

quick: format-check lint layers $(DEV) ## in less than a minute: format, lint, layers, types of the package, unit tests, the store's conformance on SQLite
	$(VENV)/bin/mypy src
	$(PY) -m pytest -n $(WORKERS) -k "not postgres" $(QUICK)

test: $(DEV) ## run the tests, on WORKERS=4 processes (many wait most of the time), with PYTHON=python3; ARGS="-k fencing" picks some
	$(PY) -m pytest -n $(WORKERS) $(ARGS)

check: format-check lint layers types docs test ## exactly what CI runs

format: $(DEV) ## rewrite the code in the one format, and fix what the linter can fix
	$(VENV)/bin/ruff check --fix --quiet .
	$(VENV)/bin/ruff format .

format-check: $(DEV) ## is the code in the one format?
	$(VENV)/bin/ruff format --check .

lint: $(DEV) ## does the linter find anything?
	$(VENV)/bin/ruff check .

layers: $(DEV) ## do imports go down only?
	$(VENV)/bin/lint-imports

types: $(DEV) ## do mypy and pyright agree with every annotation?
	@echo "mypy and pyright, side by side"
	@$(VENV)/bin/pyright & pyright=$$!; $(VENV)/bin/mypy; mypy=$$?; wait $$pyright && exit $$mypy

docs: $(DOCS) ## build the documentation site into build/site; a link, an anchor or a name that leads nowhere fails
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build

build: $(RELEASE) ## build the wheel and the source archive into dist, and check what a package index would say of them
	rm -rf dist
	$(PY) -m build --no-isolation --outdir dist
	$(PY) -m twine check --strict dist/*

soak: $(DEV) ## all features under all faults for MINUTES=10, then one audit for each promise; ARGS="--database postgres --seed 7"
	$(PY) -m tests.soak.soak --minutes $(MINUTES) $(ARGS)

random: $(DEV) ## random programs for MINUTES=10: operators, keys, messages, limits, moving between databases, each with its auditor
	$(PY) -m tests.random_programs --minutes $(MINUTES) $(ARGS)
	$(PY) -m tests.schedules.operators --minutes $(MINUTES)

bench: $(DEV) $(PEERS) ## measure against the bare databases and DBOS, as ratios; ARGS="--only sequential" picks
	$(PY) -m bench.run --peer-python $(BENCH_VENV)/bin/python $(ARGS)

simulate: $(DEV) ## every case of which the tests look at a sample; fleets under SEEDS=1000 seeds; the orders of threads for MINUTES=10; all injections, also into generated programs
	SAMPLES=all $(PY) -m pytest -n $(WORKERS) -m sampled $(ARGS)
	$(PY) -m tests.simulation --seeds $(SEEDS) $(ARGS)
	$(PY) -m tests.interleavings --minutes $(MINUTES)
	$(PY) -m tests.injection --database memory --resume
	$(PY) -m tests.injection --database postgres --every 10 --resume
	$(PY) -m tests.injection --database memory --generated $(SEEDS)
	$(PY) -m tests.injection --database sqlite --generated $(SEEDS) --seed 100000 --each 4
	$(PY) -m tests.injection --database postgres --generated $(SEEDS) --seed 200000 --each 2

upgrade: ## pin the newest versions of everything in constraints.txt
	rm -rf build/upgrade && mkdir -p build
	$(PYTHON) -m venv build/upgrade
	build/upgrade/bin/python -m pip install --quiet --upgrade pip
	build/upgrade/bin/python -m pip install --quiet --editable '.[all]' --group dev --group docs --group release
	build/upgrade/bin/python -m pip freeze --all --exclude-editable --exclude setuptools --exclude wheel > constraints.txt

clean: ## remove the environments and whatever tools have cached
	rm -rf .venv .venv-* $(BENCH_VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# pip learned about dependency groups in 25.1; what python3 brings may be older, so pip pins itself first.
$(PY):
ifdef UV
	uv venv --quiet --python $(PYTHON) $(VENV)
else
	$(PYTHON) -m venv $(VENV)
endif

$(APP): pyproject.toml constraints.txt | $(PY)
ifdef UV
	uv pip install --quiet --python $(PY) --constraint constraints.txt --editable '.[all]'
else
	$(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --upgrade pip
	$(PY) -m pip install --quiet --constraint constraints.txt --editable '.[all]'
endif
	@touch $@

$(DEV): $(APP)
ifdef UV
	uv pip install --quiet --python $(PY) --constraint constraints.txt --group dev
else
	$(PY) -m pip install --quiet --constraint constraints.txt --group dev
endif
	@touch $@

$(DOCS): $(APP)
ifdef UV
	uv pip install --quiet --python $(PY) --constraint constraints.txt --group docs
else
	$(PY) -m pip install --quiet --constraint constraints.txt --group docs
endif
	@touch $@

$(RELEASE): $(APP)
ifdef UV
	uv pip install --quiet --python $(PY) --constraint constraints.txt --group release
else
	$(PY) -m pip install --quiet --constraint constraints.txt --group release
endif
	@touch $@

$(PEERS): bench/peers.txt
ifdef UV
	uv venv --quiet --clear --python $(PYTHON) $(BENCH_VENV)
	uv pip install --quiet --python $(BENCH_VENV)/bin/python --requirement bench/peers.txt
else
	$(PYTHON) -m venv --clear $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --requirement bench/peers.txt
endif
	@touch $@
