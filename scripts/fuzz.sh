#!/usr/bin/env bash
# Fuzzes the parsers of what comes from outside (tests/fuzz). Usage: scripts/fuzz.sh [TARGET...] [--runs N] [--jobs N]
#   TARGET: a name as in tests/fuzz/<TARGET>_fuzz.cpp; all when none is given.  --runs: inputs per target (1000000).
#   --jobs: targets side by side (1). Inputs that reach new code are kept in build/fuzz/corpus; a finding is written to
#   build/fuzz/findings, its report to build/fuzz/<TARGET>.log. Needs clang (scripts/setup.sh --dev). Exits 1 when anything is found.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=1000000
jobs=1
targets=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --runs) runs=$2; shift 2 ;;
    --jobs) jobs=$2; shift 2 ;;
    -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "fuzz: unknown option $1; see scripts/fuzz.sh --help" >&2; exit 2 ;;
    *) targets+=("$1"); shift ;;
  esac
done
if [[ ${#targets[@]} -eq 0 ]]; then
  for file in tests/fuzz/*_fuzz.cpp; do
    name=${file##*/}
    targets+=("${name%_fuzz.cpp}")
  done
fi

cmake --preset fuzz >/dev/null
cmake --build build/fuzz --target "${targets[@]/%/_fuzz}"

fuzz() {  # one target
  local target=$1 log=build/fuzz/$1.log corpus=build/fuzz/corpus/$1 seeds=()
  mkdir -p "$corpus" build/fuzz/findings
  [[ ! -d tests/fuzz/seeds/$target ]] || seeds=("tests/fuzz/seeds/$target")
  if ! "build/fuzz/tests/fuzz/${target}_fuzz" -runs="$runs" -max_len=4096 -timeout=300 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/findings/$target-" "$corpus" "${seeds[@]}" >"$log" 2>&1; then
    echo "fuzz: $target: FAILED; see $log"
    return 1
  fi
  echo "fuzz: $target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs," \
    "$(sed -n 's/.*DONE *cov: \([0-9]*\).*/\1/p' "$log") edges, nothing found"
}

failed=0
for target in "${targets[@]}"; do
  while (($(jobs -rp | wc -l) >= jobs)); do wait -n || failed=1; done
  fuzz "$target" &
done
while (($(jobs -rp | wc -l) > 0)); do wait -n || failed=1; done
exit "$failed"
