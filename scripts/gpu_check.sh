#!/usr/bin/env bash
# Tests and benches on this machine's GPUs, and one table last. Usage: scripts/gpu_check.sh [--part NAME]...
#   Parts: parity (every op and collective against the CPU), suites (layouts, golden tensors and regressions on the GPU),
#   comm (two GPUs: collectives between threads, processes, and processes told to be on two machines, which NCCL joins),
#   bench (W1, W2 and W3: a step's time, floor and breakdown, attention summing in any order as the peers' does), peers (the same in plain PyTorch), sanitize (compute-sanitizer).
#   Each takes under 8 minutes. Builds with the preset cuda; MOESAIC_BUILD names a folder that is built already.
#   JSON and logs go to $OUT, by default build/gpu_check.
set -uo pipefail
cd "$(dirname "$0")/.."

parts=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --part) parts+=("${2:?--part needs a name}"); shift ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "gpu_check: unknown option $1; see scripts/gpu_check.sh --help" >&2; exit 2 ;;
  esac
  shift
done
[[ ${#parts[@]} -gt 0 ]] || parts=(parity suites comm bench peers sanitize)

nvidia-smi --query-gpu=name,driver_version,memory.total,power.limit,clocks.sm --format=csv,noheader || { echo "gpu_check: no GPU here" >&2; exit 1; }
build=${MOESAIC_BUILD:-build/cuda}
out=${OUT:-build/gpu_check}
mkdir -p "$out"
if [[ ! -x $build/moesaic ]]; then
  scripts/setup.sh
  { cmake --preset cuda && cmake --build --preset cuda -j "$(nproc)"; } >"$out/build.log" 2>&1 ||
    { tail -n 30 "$out/build.log" >&2; exit 1; }
fi

table=()
failed=0
note() {  # note PART RESULT
  table+=("$(printf '%-34s %s' "$1" "$2")")
}

# run_tests NAME PROGRAM SHARDS [gtest options]: a test program in parallel shards; prints failures only. A GPU gives its
# processes turns of milliseconds, so more than two shards are slower.
run_tests() {
  local name=$1 program=$2 shards=$3 i pids=() ok=0
  shift 3
  for ((i = 0; i < shards; ++i)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i timeout 450 "$program" --gtest_brief=1 "$@" >"$out/$name.$i.log" 2>&1 &
    pids+=($!)
  done
  for i in "${!pids[@]}"; do
    wait "${pids[$i]}" || { ok=1; echo "--- $name, shard $i"; head -c 3000 "$out/$name.$i.log"; }
  done
  cat "$out/$name".*.log >"$out/$name.log"; rm -f "$out/$name".*.log
  note "$name" "$([[ $ok -eq 0 ]] && echo passed || echo FAILED) ($(grep -ho '\[  PASSED  \] [0-9]*' "$out/$name.log" | awk '{n += $4} END {print n + 0}') passed, $(grep -c '^\[  FAILED  \] [A-Z]' "$out/$name.log") failures)"
  [[ $ok -eq 0 ]] || failed=1
}

for part in "${parts[@]}"; do
  echo "==== gpu_check: $part (${SECONDS} s so far)"
  case $part in
    parity) run_tests parity "$build/tests/parity" 2 ;;
    suites)
      for suite in dist golden regress; do
        MOESAIC_TEST_DEVICE=cuda run_tests "$suite" "$build/tests/$suite" 2
      done
      if MOESAIC_TEST_DEVICE=cuda tests/processes_test.sh "$build/moesaic" >"$out/processes.log" 2>&1; then
        note processes passed
      else
        note processes "FAILED: $(grep -m 1 FAILED "$out/processes.log")"; failed=1
      fi ;;
    comm)
      if [[ $(nvidia-smi -L | wc -l) -lt 2 ]]; then
        note comm "skipped: one GPU"
        continue
      fi
      bench_comm=("$build/moesaic" bench comm configs/runs/w1.toml --set layout.n=2 --json)
      "${bench_comm[@]}" >"$out/comm_threads.json" 2>"$out/comm.log"
      for between in processes machines; do
        for rank in 0 1; do
          # Rank 1 says nothing.
          MASTER_ADDR=127.0.0.1 MASTER_PORT=29650 RANK=$rank WORLD_SIZE=2 \
            env $([[ $between == machines ]] && echo "MOESAIC_MACHINE=$rank") \
            timeout 120 "${bench_comm[@]}" >"$out/comm_$between.$rank" 2>>"$out/comm.log" &
        done
        wait
        mv "$out/comm_$between.0" "$out/comm_$between.json"; rm -f "$out/comm_$between.1"
      done
      for between in threads processes machines; do
        if line=$(python3 scripts/comm_line.py "$out/comm_$between.json" 2>>"$out/comm.log"); then
          note "collectives, $between" "$line"
        else
          note "collectives, $between" "FAILED: $(tail -n 1 "$out/comm.log")"; failed=1
        fi
      done ;;
    bench)
      for w in w1 w2 w3; do
        if "$build/moesaic" bench step "configs/runs/$w.toml" --set train.deterministic=false --steps 10 --json >"$out/bench_$w.json" 2>"$out/bench_$w.log"; then
          note "$w" "$(python3 scripts/bench_line.py "$out/bench_$w.json")"
        else
          note "$w" "FAILED: $(tail -n 1 "$out/bench_$w.log")"; failed=1
        fi
      done ;;
    peers)
      for w in w1 w2 w3; do
        if python3 bench/peers/torch_gpu.py "$w" >"$out/torch_$w.json" 2>"$out/torch_$w.log"; then
          note "$w in PyTorch" "$(python3 scripts/bench_line.py "$out/torch_$w.json")"
        else
          note "$w in PyTorch" "FAILED: $(tail -n 1 "$out/torch_$w.log")"; failed=1
        fi
      done ;;
    sanitize)
      if compute-sanitizer --tool memcheck --error-exitcode 9 "$build/tests/parity" --gtest_brief=1 \
        --gtest_filter=-*Large*:*Repeats* >"$out/sanitize.log" 2>&1; then
        note "compute-sanitizer memcheck" clean
      else
        note "compute-sanitizer memcheck" "FAILED: $(grep -m 1 -E '=========|FAILED' "$out/sanitize.log")"; failed=1
      fi ;;
    *) echo "gpu_check: no part $part; see scripts/gpu_check.sh --help" >&2; exit 2 ;;
  esac
done

echo
printf '%s\n' "${table[@]}"
exit "$failed"
