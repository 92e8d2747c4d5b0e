#!/usr/bin/env bash
# Ranks as processes, as a person meets them: moesaic train --processes, and mpirun where there is one.
# Usage: [MOESAIC_TEST_DEVICE=cuda] tests/processes_test.sh PATH_TO_MOESAIC [MPIRUN_OF_ITS_MPI]
set -uo pipefail
moesaic=$(realpath "$1")
own_mpirun=${2:-}
device=${MOESAIC_TEST_DEVICE:-cpu}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

fail() {
  printf 'FAILED: %s\n' "$1"
  [[ $# -lt 2 || ! -f $2 ]] || tail -n 20 "$2"
  failures=$((failures + 1))
}

# expect CODE "text that the output holds" ARGUMENTS...
expect() {
  local code=$1 text=$2 status
  shift 2
  timeout 300 "$@" >output.txt 2>&1
  status=$?
  [[ $status == "$code" ]] && grep -qF -- "$text" output.txt || fail "$*: expected exit code $code and \"$text\", found $status" output.txt
}

# Starts a long run of four processes in the background ($process), by $launcher or as --processes; returns once it has made some
# steps. More arguments: options.
launcher=()
start() {
  local ranks=(--processes 4)
  [[ ${#launcher[@]} -eq 0 ]] || ranks=()
  "${launcher[@]}" "$moesaic" train run.toml "${ranks[@]}" --set "run.name=$1" --set train.steps=1000000 --set train.save_every=0 "${@:2}" >"$1.txt" 2>&1 &
  process=$!
  local i
  for ((i = 0; i < 600; ++i)); do
    [[ $(cat "runs/$1/metrics.jsonl" 2>/dev/null | wc -l) -gt 3 ]] && break
    sleep 0.05
  done
  sleep 0.3
}
# child RANK: its process. Children are started in the order of ranks.
child() { pgrep -P "$process" | sort -n | sed -n "$(($1 + 1))p"; }
# Nothing of a job may be left over.
expect_none_left() {
  local i
  for ((i = 0; i < 600; ++i)); do
    pgrep -f "run.name=$1 " >/dev/null || return
    sleep 0.05
  done
  fail "processes of $1 are left over"
}

for ((i = 0; i < 1500; ++i)); do echo "line $i of a text to train on"; done >text.txt
cat >run.toml <<END
[run]
device = "$device"
[model]
preset = "tiny"
[layout]
dp = 2
n = 2
[train]
steps = 6
seq_len = 32
save_every = 3
[data]
train = "data/text"
END
"$moesaic" data prepare text.txt data/text >/dev/null || fail "data prepare"

# The same run as threads and as processes; either goes on from the other's checkpoint.
expect 0 "6 steps in" "$moesaic" train run.toml --set run.name=threads
expect 0 "6 steps in" "$moesaic" train run.toml --set run.name=processes --processes 4
[[ $(grep -c "6 steps in" output.txt) == 1 ]] || fail "only rank 0 may speak" output.txt
for file in runs/threads/checkpoints/*/*.safetensors; do
  cmp -s "$file" "${file/threads/processes}" || fail "$file differs between threads and processes"
done
expect 0 "resumed at step 6" "$moesaic" train run.toml --set run.name=processes --resume --set train.steps=8
expect 0 "resumed at step 6" "$moesaic" train run.toml --set run.name=threads --resume --set train.steps=8 --processes 4

# What is refused, once, before anything starts.
expect 1 "--processes 3, but the layout has 4 ranks" "$moesaic" train run.toml --processes 3
[[ $(wc -l <output.txt) == 1 ]] || fail "one line for one mistake" output.txt
expect 1 "runs/threads holds an earlier run" "$moesaic" train run.toml --set run.name=threads --processes 4
[[ $(wc -l <output.txt) == 1 ]] || fail "one line for one mistake" output.txt
expect 1 "--processes is for when no launcher starts the ranks" env RANK=0 WORLD_SIZE=4 MASTER_ADDR=localhost "$moesaic" train run.toml --processes 4
expect 1 "torchrun started 2 processes, but the layout has 4 ranks" env RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost "$moesaic" train run.toml --set run.name=wrong
expect 1 "two launchers disagree" env RANK=0 WORLD_SIZE=2 PMI_RANK=1 PMI_SIZE=2 MASTER_ADDR=localhost "$moesaic" train run.toml
expect 4 "1 of 4 ranks came to localhost" env RANK=0 WORLD_SIZE=4 MASTER_ADDR=localhost MASTER_PORT=$((20000 + RANDOM % 10000)) \
  "$moesaic" train run.toml --set run.name=alone --set run.join_timeout=0.5

# Ctrl-C and SIGTERM save and leave; the run goes on, as threads.
for signal in INT TERM; do
  start "c$signal"
  kill -$signal "$process"
  wait "$process"
  [[ $? == 130 ]] || fail "SIG$signal did not give exit code 130" "c$signal.txt"
  [[ $(grep -c "leaving in good order" "c$signal.txt") == 1 ]] || fail "SIG$signal: one line, of rank 0" "c$signal.txt"
  expect_none_left "c$signal"
  steps=$(wc -l <"runs/c$signal/metrics.jsonl")
  expect 0 "resumed at step $steps from" "$moesaic" train run.toml --resume --set "run.name=c$signal" --set "train.steps=$((steps + 1))"
done

# A killed rank ends the job, named; a killed parent takes its children along.
for rank in 0 2; do
  start "k$rank"
  kill -KILL "$(child $rank)"
  begin=$(date +%s%N)
  wait "$process"
  [[ $? == 137 ]] || fail "a killed rank did not give exit code 137" "k$rank.txt"
  (($(date +%s%N) - begin < 4000000000)) || fail "the job lived on for too long" "k$rank.txt"
  grep -q "rank $rank (step .* is gone" "k$rank.txt" || fail "rank $rank is not named" "k$rank.txt"
  expect_none_left "k$rank"
done
# A rank that is stopped is killed in time, and the job goes on; a signal then ends it for good.
start stopped --restart 2 --set run.comm_timeout=1 --set train.save_every=2
kill -STOP "$(child 1)"
for ((i = 0; i < 200; ++i)); do
  grep -q "resumed at step" stopped.txt && break
  sleep 0.05
done
grep -q "rank 1 (step .* was not heard of for 1 s" stopped.txt || fail "the stopped rank is not named" stopped.txt
grep -q '"event":"failure".*restart 1 (1 of 2 without a new checkpoint) goes on from step' runs/stopped/events.jsonl || fail "no event tells of the restart" stopped.txt
sleep 1
kill -TERM "$process"
wait "$process"
[[ $? == 130 ]] || fail "SIGTERM did not give exit code 130 under --restart" stopped.txt
[[ $(grep -c '"event":"failure"' runs/stopped/events.jsonl) == 1 ]] || fail "a signal is no failure" stopped.txt
expect_none_left stopped

start parent
{ kill -KILL "$process" && wait "$process"; } 2>/dev/null
expect_none_left parent

# mpirun: through MPI in a build that has it, else through sockets.
mpirun=${own_mpirun:-$(command -v mpirun)}
if [[ -z $mpirun ]]; then
  echo "processes: skipped mpirun: there is none here"
else
  launcher=("$mpirun" -n 4)
  [[ $("$mpirun" --version) =~ Open\ MPI|OpenRTE ]] && launcher+=(--allow-run-as-root --oversubscribe --bind-to none)
  means="through sockets: this build has no MPI"
  [[ -z $own_mpirun ]] || means="through MPI: "
  # rank_of NAME RANK: its process.
  rank_of() {
    local pid
    for pid in $(pgrep -f "run.name=$1 "); do
      tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qE "^(OMPI_COMM_WORLD|PMI)_RANK=$2\$" && echo "$pid" && return
    done
  }
  losses() { grep -o '"loss":[^,]*' "runs/$1/metrics.jsonl"; }

  expect 0 "6 steps in" "${launcher[@]}" "$moesaic" train run.toml --set run.name=mpi
  [[ $device != cpu ]] || grep -qF "ranks talk $means" output.txt || fail "expected: ranks talk $means" output.txt
  for file in runs/mpi/checkpoints/step_00000006/*.safetensors; do
    cmp -s "$file" "${file/mpi/processes}" || fail "$file differs between mpirun and --processes"
  done
  [[ $(losses mpi) == "$(losses processes | head -n 6)" && $(losses mpi | wc -l) == 6 ]] || fail "losses differ between mpirun and --processes"
  if [[ $device == cpu ]]; then
    expect 0 "ranks talk through sockets" "${launcher[@]}" "$moesaic" train run.toml --set run.name=chosen --set run.transport=sockets
    [[ -n $own_mpirun ]] || expect 1 "run.transport = mpi, but this build has no MPI" "${launcher[@]}" "$moesaic" train run.toml --set run.name=none --set run.transport=mpi
  fi

  # A killed rank, and a signal.
  start mk
  kill -KILL "$(rank_of mk 2)"
  begin=$(date +%s%N)
  wait "$process"
  [[ $? != 0 ]] || fail "a killed rank gave exit code 0" mk.txt
  (($(date +%s%N) - begin < 4000000000)) || fail "the job lived on for too long" mk.txt
  grep -qE "rank 2 \(step .* is gone|EXIT STRING: Killed" mk.txt || fail "rank 2 is not named" mk.txt  # MPICH kills all at once
  expect_none_left mk
  start ms
  kill -TERM "$(rank_of ms 0)"
  wait "$process"
  [[ $? == 130 ]] || fail "SIGTERM did not give exit code 130" ms.txt
  expect_none_left ms
  steps=$(wc -l <runs/ms/metrics.jsonl)
  expect 0 "resumed at step $steps from" "$moesaic" train run.toml --resume --set run.name=ms --set "train.steps=$((steps + 1))"
fi

[[ $failures == 0 ]] && echo "processes: all as expected"
exit $((failures > 0))
