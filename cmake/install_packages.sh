#!/usr/bin/env bash
# Installs what is missing of the groups given (default: all) of packages.txt: with apt on Debian and Ubuntu;
# elsewhere it names what is missing. Fails when a required package is still missing in the end.
set -euo pipefail
list=$(dirname "${BASH_SOURCE[0]}")/packages.txt

is_there() {  # is_there command:NAME | header:PATH | sanitizer:COMPILER
  case $1 in
    command:*) command -v "${1#command:}" >/dev/null ;;
    header:*)
      command -v g++ >/dev/null &&
        echo "#include <${1#header:}>" |
        g++ -std=c++20 -I/usr/include/eigen3 -I/usr/local/include/eigen3 -x c++ -M - >/dev/null 2>&1
      ;;
    sanitizer:*) echo 'int main() {}' | "${1#sanitizer:}" -fsanitize=address -x c++ - -o /dev/null 2>/dev/null ;;
  esac
}

missing() {  # missing KIND GROUP...: names of packages
  local kind=$1 package its_kind group probe
  shift
  while read -r package its_kind group probe; do
    [[ -z $package || $package == \#* || $its_kind != "$kind" ]] && continue
    if [[ $# -gt 0 && " $* " != *" $group "* ]]; then continue; fi
    is_there "$probe" || echo "$package"
  done <"$list"
}

as_root() {
  if [[ $(id -u) -eq 0 ]]; then "$@"; else sudo "$@"; fi
}

apt_install() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" </dev/null
}

required=$(missing required "$@")
optional=$(missing optional "$@")
[[ -z $required$optional ]] && exit 0

if command -v apt-get >/dev/null && { [[ $(id -u) -eq 0 ]] || command -v sudo >/dev/null; }; then
  echo "Installing:" $required $optional
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  as_root apt-get update -q </dev/null >"$log" 2>&1 || cat "$log" >&2
  # All at once is quickest; an optional package that this distribution lacks must not stop the others.
  if ! apt_install $required $optional >"$log" 2>&1; then
    if [[ -n $required ]]; then apt_install $required >"$log" 2>&1 || cat "$log" >&2; fi
    for package in $optional; do
      apt_install "$package" >"$log" 2>&1 || echo "Continuing without $package, which could not be installed."
    done
  fi
  required=$(missing required "$@")
  optional=""
fi
if [[ -n $optional ]]; then
  echo "Not installed; parts that need these are left out:" $optional
fi
if [[ -n $required ]]; then
  echo "Missing, please install (names as on Debian and Ubuntu):" $required >&2
  exit 1
fi
