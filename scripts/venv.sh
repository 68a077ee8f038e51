# Sourced by the scripts next to it: makes sure that $root/.venv holds what they need, and names it $venv.
#
# `extra=demo` before it asks for less than everything that developers need. PYTHON names the Python to make it with.
# .venv/made-for is written last and says for which folder, extra and pyproject.toml the environment was made. While it
# is true nothing is run and nothing is fetched; without it an installation was cut short and begins again.

root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=$root/.venv

# Compiled code is kept, also where the caller's settings say not to: the tools start hundreds of processes, and each of
# them would compile the package, and each process of pytest all tests, once more.
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
  for name in ${PYTHON:-python3.13 python3.12 python3.11 python3}; do
    # Run it: a name on PATH may be the shim of a version that is not installed.
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      printf '%s\n' "$name"
      return
    fi
  done
  echo "schedq needs Python 3.11 or later, and ${PYTHON:-what is on PATH} is not" >&2
  return 1
}

make_venv() {
  local python
  python=$(find_python)
  # One at a time. The lock is the descriptor's, so it stays with this shell when python has ended, and falls
  # with the shell and its children, however they end.
  exec 9<>"$root/scripts/venv.sh"
  "$python" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)'
  if ! is_made; then
    echo "making $venv with $("$python" --version), once" >&2
    # Of no use if it was moved, left half-way or lost its Python; a change of pyproject.toml alone adds to it.
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
