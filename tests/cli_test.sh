#!/usr/bin/env bash
# The command line as a person meets it: exit codes and the messages that matter. Usage: tests/cli_test.sh PATH_TO_MOESAIC
set -uo pipefail
moesaic=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

# expect CODE "text that the output holds" ARGUMENTS...
expect() {
  local code=$1 text=$2 output status
  shift 2
  output=$(timeout 60 "$moesaic" "$@" 2>&1)
  status=$?
  if [[ $status != "$code" || $output != *"$text"* ]]; then
    printf 'FAILED: moesaic %s\n  expected exit code %s and "%s"\n  found %s and:\n%s\n' "$*" "$code" "$text" "$status" "$output"
    failures=$((failures + 1))
  fi
}

for ((i = 0; i < 1500; ++i)); do echo "line $i of a text to train on"; done >text.txt
cat >run.toml <<'END'
[model]
preset = "tiny"
[layout]
dp = 2
n = 2
[train]
steps = 4
seq_len = 32
save_every = 2
[data]
train = "data/text"
[run]
name = "a"
END

# Help and wrong usage.
for command in "" train eval generate data "data prepare" "data show" inspect "inspect model" "inspect memory" \
  "inspect program" "inspect keys" report bench "bench step"; do
  # shellcheck disable=SC2086
  expect 0 "Usage: moesaic" $command --help
done
expect 0 "moesaic train configs/runs/quickstart.toml" train --help
expect 2 "moesaic --help tells more"
expect 2 "no subcommand trian; did you mean train?" trian run.toml
expect 2 "moesaic train --help tells more" train
expect 2 "config is required" train
expect 2 "not expected" train run.toml --sett train.steps=1
expect 2 "not in range" generate a --tokens 0

# Configuration.
expect 1 "nowhere.toml: cannot be opened" train nowhere.toml
expect 1 "unknown key train.stepz in --set train.stepz=3; did you mean train.steps?" train run.toml --set train.stepz=3
expect 1 "optim.kind in --set optim.kind=adam: expected one of adamw, sgd" train run.toml --set optim.kind=adam
expect 1 "train.steps in --set train.steps=0 must be at least 1" train run.toml --set train.steps=0
expect 1 "--set expects key=value" train run.toml --set train.steps
echo 'steps = 3' >wrong.toml
expect 1 "unknown key steps in wrong.toml:1; did you mean train.steps?" train wrong.toml
expect 1 "layout.e = 3 does not divide model.num_experts = 8" train run.toml --set layout.n=3
expect 1 "run.device = null computes nothing" train run.toml --set run.device=null
expect 0 "train.steps = 100" inspect keys

# Data.
expect 1 "moesaic data prepare TEXT data/text makes them" train run.toml
expect 1 "cannot open nowhere.txt" data prepare nowhere.txt data/text
expect 2 "At least 2 required" data prepare text.txt
expect 0 "data/text.bin, data/text.idx: " data prepare text.txt data/text
expect 0 "tokens in 1 document" data show data/text
expect 1 "fewer than one sample" train run.toml --set train.seq_len=1000000
expect 1 "outside the vocabulary of V = 50" train run.toml --set model.vocab=50
expect 1 "cannot create the folder" train run.toml --set run.folder=text.txt

# A run, its checkpoint, and going on.
expect 1 "runs/a is neither a checkpoint nor a run folder that holds a whole one" train run.toml --resume
expect 0 "4 steps in" train run.toml
expect 1 "runs/a holds an earlier run, saved at step 4" train run.toml
expect 0 "all 4 steps are done" train run.toml --resume
expect 0 "resumed at step 4 from runs/a/checkpoints/step_00000004" train run.toml --resume --set train.steps=6
expect 1 "step_00000006 is newer than step 4" train run.toml --resume runs/a/checkpoints/step_00000004
expect 1 "the model or the optimizer is another one" train run.toml --resume --set optim.kind=sgd --set optim.momentum=0.9 --set train.steps=8
expect 0 "held-out loss" eval runs/a
expect 0 "held-out loss" eval runs/a --set layout.n=1 --set layout.dp=1 --sequences 3
expect 1 "runs/b is neither" eval runs/b
expect 0 "runs/a/report.html" report runs/a
[[ $(wc -c <runs/a/report.html) -gt 20000 ]] || { echo "FAILED: the report is too small to be one"; failures=$((failures + 1)); }
expect 0 "both.html" report runs/a runs/a --x tokens --out both.html
expect 1 "runs/b is not the folder of a run" report runs/b
expect 2 "runs is required" report
expect 2 "weeks not in {step,tokens,time}" report runs/a --x weeks
expect 0 "line" generate runs/a --prompt line --tokens 5
printf x | dd of=runs/a/checkpoints/step_00000006/rank_00001.safetensors bs=1 seek=50000 conv=notrunc 2>/dev/null
expect 1 "do not match their digest" eval runs/a/checkpoints/step_00000006
expect 0 "passing over a checkpoint: runs/a/checkpoints/step_00000006" train run.toml --resume --set train.steps=5

# Ctrl-C saves and leaves; the run goes on.
"$moesaic" train run.toml --set run.name=c --set train.steps=1000000 --set train.save_every=0 >c.txt 2>&1 &
process=$!
for ((i = 0; i < 200; ++i)); do
  [[ -s runs/c/metrics.jsonl ]] && break
  sleep 0.05
done
kill -INT $process
wait $process
status=$?
[[ $status == 130 ]] || { echo "FAILED: Ctrl-C gave exit code $status"; cat c.txt; failures=$((failures + 1)); }
steps=$(wc -l <runs/c/metrics.jsonl)
expect 0 "resumed at step $steps from" train run.toml --resume --set run.name=c --set "train.steps=$((steps + 1))"
[[ $(wc -l <runs/c/metrics.jsonl) == $((steps + 1)) ]] || { echo "FAILED: lines of metrics.jsonl"; failures=$((failures + 1)); }

# Looking without running.
expect 0 "351.86 B parameters" inspect model internal-352b
expect 1 "did you mean" inspect model mixtral-8x7
expect 0 "32 ranks, " inspect memory --set model.preset=mixtral-8x7b --set layout.n=8 --set layout.dp=4 --set train.seq_len=8192
expect 0 "program MoE layer forward" inspect program run.toml --only "MoE layer forward"
expect 1 'no program of this run has "nothing" in its name' inspect program run.toml --only nothing

[[ $failures == 0 ]] && echo "command line: all as expected"
exit $((failures > 0))
