# Sourced by scripts/test: fetches Prometheus and promtool for the tests of the alert rules and of Grafana's dashboard.
#
# It unpacks Debian's package into .venv/prometheus, once. Nothing is installed on the machine, so no service starts, and
# root is not needed. Without apt, dpkg or a network, those tests are skipped with a message. .venv/no-prometheus records
# a failed attempt; delete it to try again.

has_prometheus() {
  [[ -x $venv/prometheus/usr/bin/promtool ]] || { command -v prometheus && command -v promtool; }
} >/dev/null 2>&1

fetch_prometheus() {
  command -v apt-get >/dev/null 2>&1 && command -v dpkg >/dev/null 2>&1 || return 1
  local options=(-qq -o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20)
  rm -rf "$venv/prometheus.new" && mkdir -p "$venv/prometheus.new" && cd -- "$venv/prometheus.new" || return 1
  if ! timeout 300 apt-get "${options[@]}" download prometheus; then
    # The lists of packages are missing or old. Only root may renew them.
    local as_root=()
    if [[ $(id -u) != 0 ]]; then as_root=(sudo -n); fi
    "${as_root[@]}" timeout 300 apt-get "${options[@]}" -o DPkg::Lock::Timeout=120 update || return 1
    timeout 300 apt-get "${options[@]}" download prometheus || return 1
  fi
  dpkg -x ./prometheus_*.deb . && rm -f ./prometheus_*.deb && ./usr/bin/promtool --version || return 1
  rm -rf "$venv/prometheus" && mv "$venv/prometheus.new" "$venv/prometheus"
}

if ! has_prometheus && [[ ! -e $venv/no-prometheus ]]; then
  echo "fetching prometheus for the tests of the alert rules (once)" >&2
  (fetch_prometheus) </dev/null >"$venv/prometheus.log" 2>&1 || true
  if ! has_prometheus; then
    touch "$venv/no-prometheus"
    echo "prometheus can't be fetched here, see $venv/prometheus.log: tests of the alert rules are skipped" >&2
  fi
fi
