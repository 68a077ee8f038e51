# Sourced by scripts/test: makes sure that there is a Chromium for the tests of the dashboard, where that can be had.
#
# It is Debian's, and installed once. Without apt, without root or sudo, or offline, those tests are skipped and say so;
# .venv/no-chromium says that it was tried, and is removed to try again.

has_chromium() {
  command -v chromium || command -v chromium-browser || command -v google-chrome
} >/dev/null 2>&1

install_chromium() {
  local as_root=()
  if [[ $(id -u) != 0 ]]; then
    as_root=(sudo -n)
    "${as_root[@]}" true 2>/dev/null || return 1
  fi
  command -v apt-get >/dev/null 2>&1 || return 1
  local options=(-qq -y --no-install-recommends -o DPkg::Lock::Timeout=120 -o Acquire::Retries=1)
  options+=(-o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20)
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive timeout 300 apt-get "${options[@]}")
  "${apt[@]}" install chromium fonts-dejavu-core ||
    { "${apt[@]}" update && "${apt[@]}" install chromium fonts-dejavu-core; }
}

if ! has_chromium && [[ ! -e $venv/no-chromium ]]; then
  echo "installing chromium for the tests in a browser, once" >&2
  install_chromium </dev/null >"$venv/chromium.log" 2>&1 || true
  if ! has_chromium; then
    touch "$venv/no-chromium"
    echo "chromium can't be installed here, see $venv/chromium.log: the tests in a browser are skipped" >&2
  fi
fi
