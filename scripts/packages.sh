# Sourced by demo and check: the Debian packages that building and testing need, installed when missing.
# CUDA is no Debian package; it is used where nvcc is found.

packages_build=(gcc g++ meson ninja-build pkg-config libjansson-dev libyaml-dev libcpptoml-dev libexpat1-dev libhwloc-dev
  libopenblas-dev libdnnl-dev libopenmpi-dev openmpi-bin gnuplot-nox)
packages_test=(libcmocka-dev chromium-headless-shell python3-torch)

# Prints the packages among its arguments that are not installed.
packages_missing() {
  local p
  for p in "$@"; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || printf '%s\n' "$p"
  done
}

packages_install() {
  local missing sudo=()
  mapfile -t missing < <(packages_missing "$@")
  if [ ${#missing[@]} -eq 0 ]; then
    echo "packages: all ${#@} are installed"
    return 0
  fi
  echo "packages: installing ${missing[*]}"
  if ! command -v apt-get >/dev/null; then
    echo "packages: this is no Debian system; install by hand what corresponds to: ${missing[*]}" >&2
    return 1
  fi
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "packages: not root and no sudo; as root run: apt-get install ${missing[*]}" >&2
      return 1
    fi
    sudo=(sudo)
  fi
  local log
  log=$(mktemp)
  if ! { "${sudo[@]}" apt-get update -q && DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "packages: apt-get failed; its whole output is in $log" >&2
    return 1
  fi
  rm -f "$log"
}
