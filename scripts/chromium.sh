# Sourced by scripts/test: installs Chromium for the dashboard's browser tests where that is possible.
#
# It installs Debian's package, once. Without apt, root or sudo, or a network, those tests are skipped with a message.
# .venv/no-chromium records a failed attempt; delete it to try again.

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
  echo "installing chromium for the browser tests (once)" >&2
  install_chromium </dev/null >"$venv/chromium.log" 2>&1 || true
  if ! has_chromium; then
    touch "$venv/no-chromium"
    echo "chromium can't be installed here, see $venv/chromium.log: browser tests are skipped" >&2
  fi
fi
