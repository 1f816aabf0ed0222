# The two commands of the README are `make demo` and `make test`; both set up what they need.
.DEFAULT_GOAL := help
.PHONY: help setup peers demo test check bench reliability picture lock size clean

# Where it is set, as in many containers, each command that a test starts compiles our modules anew:
# 0.11 of 0.25 s of a processor.
unexport PYTHONDONTWRITEBYTECODE

# Where Debian has mosquitto, and others than root do not look.
export PATH := $(PATH):/usr/sbin

BIN := .venv/bin
OUT ?= out/demo
# Of pytest; most tests wait for a board or a clock, so two cores are enough for three.
WORKERS ?= 3

help: ## show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## (.*)/  make \1\t\2/' | expand -t 16

setup: ## install what is needed: Debian packages (when root) and .venv
	@./setup.sh

demo: setup ## three virtual boards, from blank flash to a Spark report; KEEP=1: then look at the dashboard
	@$(BIN)/motemq demo --out $(OUT) $(if $(KEEP),--keep)

peers:
	@./setup.sh tests

check: setup ## lint, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: peers check ## pass all tests: pure, MicroPython, virtual boards, Spark
	@$(BIN)/motemq firmware build unix unix32 unix126 rpi_pico vesp32 vpico_w
	MOTEMQ_PICTURES=out/pictures $(BIN)/pytest -n $(WORKERS) --dist loadfile --max-worker-restart 0 -m "not alone" --durations 10
	$(BIN)/pytest -m alone

bench: setup ## benchmarks against named peers
	$(BIN)/python -m benchmarks broker
	$(BIN)/python -m benchmarks client
	$(BIN)/python -m benchmarks link
	$(BIN)/python -m benchmarks pipeline

reliability: setup ## kills, losses of power, faults, and what journal.ack costs; into docs/reliability.md
	$(BIN)/python -m benchmarks reliability --write

picture: setup ## the README's picture of the dashboard, from a real run
	$(BIN)/python -m tests.host_broker.dashboard.picture docs/dashboard.png

lock: ## pin what pyproject.toml asks for, with hashes, in requirements.lock
	@[ -x .venv/bin/python ] || ./setup.sh
	$(BIN)/python -m venv .venv/lock
	.venv/lock/bin/pip install --quiet 'uv>=0.8,<1'
	.venv/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --all-extras \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate \
	  --custom-compile-command 'make lock' --output-file requirements.lock pyproject.toml
	rm -rf .venv/lock

size: setup ## bytes of .mpy of the client's modules; fails above its budget
	$(BIN)/python -m benchmarks size

clean: ## remove .venv and what the demo wrote (not the firmware cache)
	rm -rf .venv out
