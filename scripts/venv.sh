# Sourced by the scripts next to it: makes sure that $root/.venv is installed and sets $venv.
#
# Set `extra=demo` first to install less than the full development environment. PYTHON names the interpreter to use.
# .venv/made-for is written last and records the folder, extra and pyproject.toml of the installation. While it matches,
# nothing runs and nothing is downloaded. If it is missing, an installation was interrupted and starts again.

root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=$root/.venv

# Always cache bytecode, even if the caller's environment disables it. The tools start hundreds of processes, each of
# which would otherwise compile the package again, and each pytest process all tests.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX=$venv/pycache

extra=${extra:-dev}

made_for() {
  printf '%s\n' "$root" "$1"
  cat -- "$root/pyproject.toml"
}

is_made() {
  local made
  [[ -x $venv/bin/python && -r $venv/made-for ]] || return 1
  made=$(<"$venv/made-for")
  [[ $made == "$(made_for "$extra")" || $made == "$(made_for dev)" ]]
}

find_python() {
  local name
  for name in ${PYTHON:-python3.13 python3.12 python3.11 python3 python3.14 python3.15}; do
    # Run it, because a name on PATH may be a shim for a version that is not installed.
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      printf '%s\n' "$name"
      return
    fi
  done
  echo "schedq needs Python 3.11 or later, but ${PYTHON:-every python on PATH} is older or missing" >&2
  return 1
}

make_venv() {
  local python
  python=$(find_python)
  # One installation at a time. The lock belongs to the file descriptor: it outlives this Python process and is released
  # when the shell and its children end, however they end.
  exec 9<>"$root/scripts/venv.sh"
  "$python" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)'
  if ! is_made; then
    echo "creating $venv with $("$python" --version) (once)" >&2
    # Start over if it was moved, is incomplete or has lost its Python; a changed pyproject.toml only adds packages.
    if [[ ! -x $venv/bin/python || ! -r $venv/made-for || "$(head -n 1 "$venv/made-for")" != "$root" ]]; then
      "$python" -m venv --clear "$venv"
    fi
    rm -f "$venv/made-for"
    (cd -- "$root" && "$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check --no-input \
      --editable ".[$extra]" </dev/null >&2)
    made_for "$extra" >"$venv/made-for.new"
    mv "$venv/made-for.new" "$venv/made-for"
  fi
  exec 9>&-
}

is_made || make_venv
