#!/usr/bin/env bash
# The command line as a person meets it: exit codes and the messages that matter. Usage: tests/cli_test.sh PATH_TO_MOESAIC
set -uo pipefail
moesaic=$(realpath "$1")
reader=$(dirname "$(realpath "$0")")/support/read_megatron.py
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

# expect CODE "text that the output holds" ARGUMENTS...
expect() {
  local code=$1 text=$2 output status
  shift 2
  output=$(timeout 300 "$moesaic" "$@" 2>&1)
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
  "inspect program" "inspect keys" report bench "bench step" convert; do
  # shellcheck disable=SC2086
  expect 0 "Usage: moesaic" $command --help
done
expect 0 "moesaic train configs/runs/quickstart.toml" train --help
expect 0 "moesaic 0." --version
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
expect 0 'document 0, 46891 tokens: "line 0 of a text to trai" ...' data show data/text --documents 3
printf '{"id":1,"text":"caf\\u00e9"}\n{"text":""}\n\n{"text":"a\\nb"}\n' >lines.jsonl
expect 0 "data/lines.bin, data/lines.idx: 11 tokens in 3 documents, from 57 B" data prepare lines.jsonl data/lines
printf '99 97 102 195 169 257\n257\n97 10 98 257\n' >expected.txt
python3 "$reader" data/lines | diff expected.txt - || { echo "FAILED: an independent reader of data/lines"; failures=$((failures + 1)); }
"$moesaic" data prepare - data/piped --format jsonl --jobs 1 <lines.jsonl >/dev/null
cmp data/lines.bin data/piped.bin && cmp data/lines.idx data/piped.idx || { echo "FAILED: data prepare -"; failures=$((failures + 1)); }
echo '{"body":1}' >>lines.jsonl
expect 1 'lines.jsonl:5: not a line of JSON lines with text under "text": it has no key "text"' data prepare lines.jsonl data/lines
expect 0 "passed over 1 broken line, the first: lines.jsonl:5:" data prepare lines.jsonl data/lines --skip-broken
expect 2 "csv not in {auto,text,jsonl}" data prepare lines.jsonl data/lines --format csv
expect 1 "\"data/lines\" is no part of a blend" train run.toml --set "data.train=0.5 data/text, data/lines"
expect 1 "data/lines has 11 tokens, fewer than one sample" train run.toml --set "data.train=0.5 data/text, 0.5 data/lines"

# Ctrl-C leaves no file.
mkfifo slow
(exec 3>slow; cat text.txt >&3; sleep 1; cat text.txt >&3) &
"$moesaic" data prepare slow data/slow >/dev/null 2>&1 &
process=$!
sleep 0.3
kill -INT $process
wait $process
status=$?
[[ $status == 130 ]] || { echo "FAILED: Ctrl-C in data prepare gave exit code $status"; failures=$((failures + 1)); }
[[ -z $(ls data | grep slow) ]] || { echo "FAILED: Ctrl-C in data prepare left files"; failures=$((failures + 1)); }
expect 0 "tokens" data prepare text.txt data/second
expect 1 "fewer than one sample" train run.toml --set train.seq_len=1000000
expect 1 "outside the vocabulary of V = 50" train run.toml --set model.vocab=50
expect 1 "cannot create the folder" train run.toml --set run.folder=text.txt

# A run, its checkpoint, and going on.
expect 0 "2 steps in" train run.toml --set run.name=blend --set "data.train=0.7 data/text, 0.3 data/second" --set train.steps=2
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

# To Hugging Face and back, and a run that starts from it.
expect 2 "not in {auto,hf,moesaic}" convert runs/a hf --to torch
expect 1 "runs/b is neither a checkpoint nor a run folder" convert runs/b hf
expect 0 "no tokenizer files were found" convert runs/a hf
expect 1 "hf is there already" convert runs/a hf
[[ -s hf/config.json && -s hf/model.safetensors ]] || { echo "FAILED: nothing in hf"; failures=$((failures + 1)); }
expect 1 "--vocab 100 is less than the 259 rows" convert hf back --vocab 100
expect 1 "--like is for the way to Hugging Face" convert hf back --like hf
expect 0 "259 there" convert hf back --vocab 320
expect 0 "held-out loss" eval back --set data.train=data/text --set train.seq_len=32 --sequences 3
expect 0 "2 steps in" train back/run.toml --set data.train=data/text --set train.seq_len=32 --set train.steps=2 --set run.name=e
expect 1 "a run cannot be resumed from it" train back/run.toml --set data.train=data/text --set train.seq_len=32 \
  --set run.name=f --resume back
expect 0 "320 here, 259 there" convert runs/e again --dtype bf16

# Ctrl-C leaves no folder, on the way in and out: its two tensors of 256 MB take a while.
"$moesaic" convert hf wide --vocab 1000000 >/dev/null || { echo "FAILED: convert --vocab"; failures=$((failures + 1)); }
for conversion in "hf stopped --vocab 1000000" "wide stopped --vocab 1000000"; do
  # shellcheck disable=SC2086
  "$moesaic" convert $conversion >stopped.txt 2>&1 &
  process=$!
  until [[ -d stopped.tmp ]] || ! kill -0 $process 2>/dev/null; do :; done
  kill -INT $process
  wait $process
  status=$?
  [[ $status == 130 ]] || { echo "FAILED: Ctrl-C in convert $conversion gave exit code $status"; cat stopped.txt; failures=$((failures + 1)); }
  grep -q "leaving in good order" stopped.txt || { echo "FAILED: convert said nothing of leaving"; failures=$((failures + 1)); }
  [[ -z $(ls -d stopped stopped.tmp 2>/dev/null) ]] || { echo "FAILED: Ctrl-C in convert $conversion left a folder"; failures=$((failures + 1)); }
done
rm -r wide

# A command that writes no file is ended at once. (A background process of a script ignores the signal without env.)
env --default-signal=INT "$moesaic" generate runs/a --tokens 1000000 >endless.txt 2>&1 &
process=$!
until [[ -s endless.txt ]] || ! kill -0 $process 2>/dev/null; do :; done
kill -INT $process
wait $process
status=$?
[[ $status == 130 ]] || { echo "FAILED: Ctrl-C in generate gave exit code $status"; failures=$((failures + 1)); }
sed -i 's/"silu"/"gelu"/' hf/config.json
expect 1 'hf/config.json: hidden_act = "gelu": only silu is supported' convert hf other

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
expect 1 "Did you mean mixtral-8x7b?" inspect model mixtral-8x7
expect 0 "32 ranks, " inspect memory --set model.preset=mixtral-8x7b --set layout.n=8 --set layout.dp=4 --set train.seq_len=8192
expect 0 "program MoE layer forward" inspect program run.toml --only "MoE layer forward"
expect 1 'no program of this run has "nothing" in its name' inspect program run.toml --only nothing

[[ $failures == 0 ]] && echo "command line: all as expected"
exit $((failures > 0))
