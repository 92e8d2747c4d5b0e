#!/usr/bin/env bash
# Sets up, builds and tests. Usage: scripts/test.sh [--all]
#   By default: the release build (with CUDA where nvcc is), with a pairwise choice of layouts.
#   --all: the full matrix of layouts in the release build, its suites of whole models again in chaos mode (ops in random order),
#   then also the sanitizer builds (debug: address and undefined behaviour; tsan: threads) with the pairwise choice, and where
#   MPI is (scripts/setup.sh --mpi) the tests of a build with it.
# The last line is "N passed, N failed", over all builds; a build that fails counts as one failure. Exits 1 on a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

release=$(scripts/preset.sh)
presets=("$release")
all=0
case ${1:-} in
  "") ;;
  --all) presets=("$release" debug tsan); all=1; ! command -v mpicc >/dev/null || presets+=(mpi) ;;
  -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "test: unknown option $1; see scripts/test.sh --help" >&2; exit 2 ;;
esac

scripts/setup.sh

passed=0
failed=0
skipped=0

fail_preset() {
  echo "test: $1" >&2
  failed=$((failed + 1))
}

# Prints "passed failed skipped" from ctest's report. A test whose program is missing is there as not run: that is a failure,
# unlike one that skipped itself.
count_results() {
  python3 - "$1" <<'PY'
import sys, xml.etree.ElementTree as xml
passed = failed = skipped = 0
for test in xml.parse(sys.argv[1]).getroot().iter("testcase"):
    status, note = test.get("status"), test.find("skipped")
    if status == "run":
        passed += 1
    elif status == "disabled" or (note is not None and note.get("message", "").startswith("SKIP_")):
        skipped += 1
    else:
        failed += 1
print(passed, failed, skipped)
PY
}

# run_tests PRESET [VARIABLE=VALUE...] [-- CTEST_OPTION...]: tests what is built; adds to the counts.
run_tests() {
  local preset=$1 report=$PWD/build/$1/test_report.xml code=0 counts now_passed now_failed now_skipped variables=()
  shift
  while [[ $# -gt 0 && $1 != -- ]]; do variables+=("$1"); shift; done
  [[ $# -eq 0 ]] || shift
  echo "test: $preset: tests ${variables[*]}"
  rm -f "$report"
  env "${variables[@]}" ctest --preset "$preset" -j 2 --no-tests=error --output-junit "$report" "$@" || code=$?
  if ! counts=$(count_results "$report"); then
    fail_preset "$preset: ctest exited with $code and left no report at $report"
    return
  fi
  read -r now_passed now_failed now_skipped <<<"$counts"
  passed=$((passed + now_passed))
  failed=$((failed + now_failed))
  skipped=$((skipped + now_skipped))
  [[ $code -eq 0 || $now_failed -gt 0 ]] || fail_preset "$preset: ctest exited with $code without naming a failed test"
}

build_preset() {
  local preset=$1
  echo "test: $preset: build"
  if ! { cmake --preset "$preset" && cmake --build --preset "$preset" -j "$(nproc)"; }; then
    fail_preset "$preset: the build FAILED, so none of its tests ran"
    return 1
  fi
}

for preset in "${presets[@]}"; do
  build_preset "$preset" || continue
  if [[ $all -eq 1 && $preset == "$release" ]]; then
    run_tests "$preset" MOESAIC_FULL_MATRIX=1
    run_tests "$preset" MOESAIC_TEST_REPLAY=chaos -- -L '^(dist|golden|regress|unit_train)$'
  else
    run_tests "$preset"
  fi
done

if [[ $release == cuda ]]; then
  nvidia-smi -L 2>/dev/null || echo "CUDA was compiled; its tests were skipped: no GPU here"
else
  echo "CUDA was not compiled: no nvcc here"
fi
[[ $skipped -eq 0 ]] || echo "$skipped skipped"
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
