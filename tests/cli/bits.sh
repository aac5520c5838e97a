#!/bin/sh
# the same bytes for any number of threads, and however often a run is interrupted
. "$(dirname "$0")/support.inc"
train="$attn train --data text.txt $tiny --dropout 0.1 --accumulate 2"

status 0 $train --out one --steps 40 --threads 1
status 0 $train --out two --steps 40 --threads 2
same one/model.safetensors two/model.safetensors "threads"

status 0 $train --out half --steps 20 --decay-steps 40
cmp -s one/model.safetensors half/model.safetensors && wrong "20 steps give the model of 40"
# what a crash would leave: a log that is ahead of the checkpoint, and a line cut short
printf '{"step": 21, "loss": 1, "valid_loss": null, "lr": 1, "grad_norm": 1, "tokens_per_second": 1}\n{"step": 2' >>half/log.jsonl
status 0 $attn train --out half --resume --steps 40 --threads 1 --eval-every 7
same one/model.safetensors half/model.safetensors "resumed"
for run in one half; do sed 's/.*"step": \([0-9]*\), "loss": \([0-9.]*\).*/\1 \2/' $run/log.jsonl >$run.losses; done
same one.losses half.losses "losses of the log"
status 0 $attn train --out half --resume
same one/model.safetensors half/model.safetensors "resumed at its end"

# a moved run, resumed from another folder
mkdir elsewhere
status 0 $train --out half2 --steps 20 --decay-steps 40
mv half2 elsewhere/half2
(cd elsewhere && $attn train --out half2 --resume --steps 40 >/dev/null) || wrong "resume from elsewhere"
same one/model.safetensors elsewhere/half2/model.safetensors "moved"

for signal in INT TERM HUP; do
    rm -rf stopped
    $train --out stopped --steps 1000000 --eval-every 999999 >progress 2>err &
    process=$!
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        [ -s stopped/log.jsonl ] && break
        sleep 0.5
    done
    kill -$signal $process
    wait $process
    got=$?
    [ $got = 130 ] || wrong "SIG$signal: exit status $got, expected 130"
    [ ! -s err ] || wrong "SIG$signal: standard error is not empty: $(cat err)"
    step=$(sed -n 's/.*"step": \([0-9]*\),.*/\1/p' stopped/log.jsonl | tail -n 1)
    [ -s stopped/checkpoint.safetensors ] || wrong "SIG$signal: no checkpoint"
    [ $signal = INT ] || continue
    status 0 $attn generate --model stopped --prompt a --tokens 3
    steps=$((step + 15))
    status 0 $attn train --out stopped --resume --steps $steps
    status 0 $train --out straight --steps $steps --decay-steps 1000000 --warmup 100
    same stopped/model.safetensors straight/model.safetensors "interrupted at $step"
done
done_with_tests
