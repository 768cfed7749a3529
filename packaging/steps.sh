# Sourced by ./quickstart and ./run-tests: the set-up that both need, one announced and timed step after the other.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit
build=$root/build
logs=$build/logs
mkdir -p "$logs"
libtorch=${DSLAUNCH_LIBTORCH:-$root/.deps/libtorch}
started_s=$SECONDS
step_number=0
ticker=
beside=

say() { printf '%s\n' "$*"; }
duration() { # SECONDS -> "2 min 05 s"
  if [ "$1" -lt 60 ]; then printf '%d s' "$1"; else printf '%d min %02d s' $(($1 / 60)) $(($1 % 60)); fi
}
die() { # MESSAGE...: the last words
  printf '\n%s\n' "$*" >&2
  exit 1
}

# Shows the step's time and the last line of its log: live on a terminal, else once a minute.
tick() { # LOG
  local begin=$SECONDS next=60 line
  while sleep 1 >/dev/null 2>&1; do
    if ! [ -t 1 ]; then
      [ $((SECONDS - begin)) -ge $next ] || continue
      next=$((next + 60))
    fi
    line=$(tail -c 300 "$1" 2>/dev/null | tr '\r' '\n' | tail -n 1 | tr -dc '[:print:]')
    if [ -t 1 ]; then
      printf '\r\033[K    %s  %.90s' "$(duration $((SECONDS - begin)))" "$line"
    else
      printf '    %s  %.90s\n' "$(duration $((SECONDS - begin)))" "$line"
    fi
  done
}
stop_ticker() {
  [ -n "$ticker" ] || return 0
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  ticker=
  [ ! -t 1 ] || printf '\r\033[K'
}
stop_beside() {
  [ -n "$beside" ] || return 0
  kill -- "-$beside" 2>/dev/null || true
  beside=
}
trap 'stop_ticker; stop_beside' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# step NAME TITLE HINT COMMAND...: runs COMMAND with its output in $logs/NAME.log; ends the script if it fails.
step() {
  local title=$2 hint=$3 log=$logs/$1.log begin=$SECONDS rc=0
  shift 3
  step_number=$((step_number + 1))
  say "$step_number. $title"
  : >"$log"
  tick "$log" &
  ticker=$!
  "$@" </dev/null >>"$log" 2>&1 || rc=$?
  stop_ticker
  if [ $rc != 0 ]; then
    say "   failed after $(duration $((SECONDS - begin))) with exit code $rc. The last lines of $log:" >&2
    tail -n 30 "$log" | sed 's/^/   | /' >&2
    die "$hint"
  fi
  say "   done in $(duration $((SECONDS - begin)))"
}

# start_beside COMMAND...: runs COMMAND beside the steps; its output is what wait_beside gives. One at a time.
start_beside() {
  setsid "$@" </dev/null >"$logs/beside.log" 2>&1 &
  beside=$!
}
# when_idle COMMAND...: runs COMMAND where others leave a core idle, and nowhere else.
when_idle() {
  # Not every container lets a process choose its scheduling class.
  { echo 19 >/proc/self/autogroup; } 2>/dev/null || true
  if chrt --idle 0 true 2>/dev/null; then set -- chrt --idle 0 "$@"; fi
  exec nice -n 19 "$@"
}
export -f when_idle
wait_beside() {
  local rc=0
  tail -n +1 --follow --pid="$beside" "$logs/beside.log"  # as it comes, for the step's lines
  wait "$beside" || rc=$?
  beside=
  return $rc
}

# install_packages OPTION...: in the foreground, since sudo may ask for a password.
install_packages() {
  step_number=$((step_number + 1))
  say "$step_number. Debian packages (2 minutes if many are missing)"
  if [ -n "${DSLAUNCH_NO_PACKAGES:-}" ]; then
    say "   skipped, because DSLAUNCH_NO_PACKAGES is set"
    return
  fi
  local begin=$SECONDS
  packaging/install-debian-packages "$@" 2>&1 | sed 's/^/   /'
  [ "${PIPESTATUS[0]}" = 0 ] ||
    die "The packages could not be installed; the error is above. If you install them yourself, or have equivalents" \
        "from elsewhere, run this again with DSLAUNCH_NO_PACKAGES=1."
  say "   done in $(duration $((SECONDS - begin)))"
}

fetch_libtorch() {
  if [ -n "${DSLAUNCH_LIBTORCH:-}" ]; then
    [ -e "$libtorch/lib/libtorch_cpu.so" ] ||
      die "DSLAUNCH_LIBTORCH=$libtorch has no lib/libtorch_cpu.so. Set it to a LibTorch 2.11 folder (the one with" \
          "include/ and lib/), or unset it to download LibTorch into .deps/libtorch."
    step_number=$((step_number + 1))
    say "$step_number. LibTorch: yours, in $libtorch"
    return
  fi
  step libtorch "LibTorch 2.11 into .deps/libtorch (0.5 GB from PyPI, 2 minutes; once)" \
    "The download of LibTorch failed. To use a LibTorch 2.11 on this machine: DSLAUNCH_LIBTORCH=/its/folder $0" \
    packaging/fetch-libtorch "$libtorch"
}

# How many NVIDIA GPUs the driver of this machine lists.
count_gpus() {
  local found
  mapfile -t found < <(compgen -G '/proc/driver/nvidia/gpus/*' || compgen -G '/dev/nvidia[0-9]*')
  echo ${#found[@]}
}
# Where there is a GPU, what LibTorch needs there; one that the user has brought has its own beside it.
fetch_nvidia() {
  [ "$(count_gpus)" -gt 0 ] && [ -z "${DSLAUNCH_LIBTORCH:-}" ] || return 0
  step nvidia "NVIDIA's libraries into .deps/nvidia, since there is a GPU (2 GB from PyPI, 2 minutes; once)" \
    "The download of NVIDIA's libraries failed. To use those of a PyTorch 2.11: DSLAUNCH_LIBTORCH=.../site-packages/torch $0" \
    packaging/fetch-nvidia "$root/.deps/nvidia"
}

# One compiler per core, but 2 GiB for each: LibTorch's headers are large. DSLAUNCH_JOBS overrides it.
build_jobs() {
  if [ -n "${DSLAUNCH_JOBS:-}" ]; then
    echo "$DSLAUNCH_JOBS"
    return
  fi
  local by_memory
  by_memory=$(awk '/MemAvailable/ {print int($2 / 2097152)}' /proc/meminfo)
  local jobs
  jobs=$(nproc)
  [ "$by_memory" -ge "$jobs" ] || jobs=$by_memory
  [ "$jobs" -ge 1 ] || jobs=1
  echo "$jobs"
}

# A build folder keeps what it was made with: for users, warnings are no errors.
configure() { # CMAKE_ARGUMENT...
  if grep -qs '^DSLAUNCH_WERROR:[A-Z]*=OFF' build/CMakeCache.txt; then set -- "$@" -DDSLAUNCH_WERROR=OFF; fi
  step configure "Configuring build/ (5 s)" "The configuration failed; the error of CMake is above." \
    cmake --preset dev -DDSLAUNCH_LIBTORCH="$libtorch" "$@"
}

# Links to the man page and to what completes command lines, where shells look for a user's own. Files of the user's stay.
link_documents() {
  local data=${XDG_DATA_HOME:-${HOME:-}/.local/share} path
  case $data in /.local/share | [!/]*) return 0 ;; esac # no home
  for path in man/man1/dslaunch.1 bash-completion/completions/dslaunch fish/vendor_completions.d/dslaunch.fish; do
    [ ! -e "$data/$path" ] || [ -L "$data/$path" ] || continue
    { mkdir -p "$data/${path%/*}" && ln -sfn "$build/share/$path" "$data/$path"; } 2>/dev/null || return 0
  done
  say "   The man page and TAB completion for bash and fish are linked from $data;"
  say "   for zsh: fpath+=($build/share/zsh/site-functions) in ~/.zshrc, before compinit."
}

build_failed="The build failed. If the compiler was 'Killed', memory ran out: run DSLAUNCH_JOBS=1 $0"
compile() { # TITLE TARGET...
  local title=$1
  shift
  step compile "$title" "$build_failed" cmake --build build --parallel "$(build_jobs)" ${1:+--target "$@"}
}
