#!/usr/bin/env bash
# Installs the agents that the peer suite talks to, and the MCP clients of the host suite, each at its pin and in a folder of
# its own. Hosts that come with an agent are not installed again.
#
#   tests/peers/install.sh [--only NAME]... [DIR]
#
# DIR is target/peers unless it, or SUBAGENTS_PEERS, says otherwise; with SUBAGENTS_PEERS the suite looks there too. What
# is installed at its pin is left alone. One that fails does not hold up the others; the exit status is 0 if all that was
# asked for is there, 1 if something is not, 2 for a wrong command line. Nothing is installed outside of DIR.
#
# A folder of tests/peers/agents or tests/hosts with a package-lock.json comes from npm, one with a requirements.txt from
# PyPI. Both name every package below with its exact version: to move a pin, change it there and install again.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Where the pins of one are.
folder_of() {
  local folder
  for folder in "$here/agents/$1" "$here/../hosts/$1"; do
    if [[ -f $folder/package-lock.json || -f $folder/requirements.txt ]]; then
      printf '%s\n' "$folder"
      return
    fi
  done
  return 1
}

names() {
  local folder name
  for folder in "$here"/agents/* "$here"/../hosts/*; do
    name=${folder##*/}
    [[ $(folder_of "$name") != "$folder" ]] || printf '%s\n' "$name"
  done
}

usage() {
  printf 'usage: %s [--only NAME]... [DIR]\nNAME is one of: %s\n' "$0" "$(names | paste -sd' ')"
}

wrong() {
  printf '%s: %s\n' "$0" "$1" >&2
  usage >&2
  exit 2
}

only=()
dir=
while (($#)); do
  case $1 in
    --only)
      (($# > 1)) || wrong "--only needs a NAME"
      [[ $2 =~ ^[a-z0-9-]+$ ]] && folder_of "$2" >/dev/null || wrong "there is no agent '$2'"
      only+=("$2")
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    -*) wrong "unknown option '$1'" ;;
    *)
      [[ -z $dir && -n $1 ]] || wrong "one DIR is enough"
      dir=$1
      ;;
  esac
  shift
done
dir=${dir:-${SUBAGENTS_PEERS:-$here/../../target/peers}}
mkdir -p "$dir" && dir=$(cd "$dir" && pwd) || exit 1
((${#only[@]})) || mapfile -t only < <(names)

# What an agent is installed from: as long as it is the same, so is the agent. The suite compares it too.
pins() {
  local file folder
  folder=$(folder_of "$1")
  for file in package.json package-lock.json requirements.txt; do
    [[ ! -f $folder/$file ]] || cat "$folder/$file"
  done
}

missing() {
  printf 'needs %s, which is not on PATH\n' "$1"
  return 1
}

from_npm() {
  command -v node >/dev/null || missing "node (20 or newer)" || return
  command -v npm >/dev/null || missing npm || return
  local major
  major=$(node -p 'process.versions.node.split(".")[0]') || return
  ((major >= 20)) || {
    printf 'needs node 20 or newer, and this is %s\n' "$(node --version)"
    return 1
  }
  # Not `npm ci`: it wants a line in the lock for every optional package of every system, and a registry's mirror does not
  # have them all.
  cp "$1"/package.json "$1"/package-lock.json . &&
    npm install --no-audit --no-fund --loglevel=error
}

from_pypi() {
  command -v python3 >/dev/null || missing "python3 (3.10 or newer)" || return
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    printf 'needs python 3.10 or newer, and this is %s\n' "$(python3 --version)"
    return 1
  }
  python3 -c 'import ensurepip, venv' 2>/dev/null || missing "python3's venv (Debian: python3-venv)" || return
  python3 -m venv venv &&
    venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r "$1/requirements.txt"
}

# In a folder of its own, which is empty.
install() {
  local folder
  folder=$(folder_of "$1")
  if [[ -f $folder/package-lock.json ]]; then from_npm "$folder"; else from_pypi "$folder"; fi
}

failed=()
for name in "${only[@]}"; do
  home=$dir/$name
  if pins "$name" | cmp -s - "$home/.pins"; then
    printf '%-11s is there\n' "$name"
    continue
  fi
  printf '%-11s installing into %s\n' "$name" "$home"
  begun=$SECONDS
  # The stamp is written last: what was cut short is begun again.
  if rm -rf "$home" && mkdir "$home" && (cd "$home" && install "$name") >"$dir/$name.log" 2>&1 </dev/null &&
    pins "$name" >"$home/.pins"; then
    printf '%-11s installed: %s, %d s\n' "$name" "$(du -sh "$home" | cut -f1)" $((SECONDS - begun))
    rm -f "$dir/$name.log"
  else
    failed+=("$name")
    printf '%-11s FAILED, %s has all of it; the end:\n' "$name" "$dir/$name.log"
    tail -n 5 "$dir/$name.log" | sed 's/^/           | /'
  fi
done
if ((${#failed[@]})); then
  printf 'not installed: %s\n' "${failed[*]}"
  exit 1
fi
