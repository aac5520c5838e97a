#!/bin/sh
# every mistake of a user: exit status 2, one line that says what was wrong, and nothing written
. "$(dirname "$0")/support.inc"
train="$attn train --data text.txt --out new $tiny"

fails 2 'nearest is "train"' $attn trian
fails 2 'unknown command' $attn ""
fails 2 'unknown command' $attn help nothing
fails 2 'nearest of "attn train" is --layers' $attn train --laers 3
fails 2 'nearest of "attn generate" is --temperature' $attn generate --temprature=1
fails 2 'unknown flag' $attn train -x
fails 2 'unexpected argument' $attn train text.txt
fails 2 'unexpected argument' $attn info a b
fails 2 'value is missing' $attn train --data
fails 2 'value is missing' $attn train --data --out new
fails 2 'expected no value' $attn train --resume=yes
fails 2 'data: needed' $attn train --out new
fails 2 'out: needed' $attn train --data text.txt
fails 2 'model: needed' $attn generate
fails 2 'data: needed' $attn eval --model new
fails 2 'got neither' $attn info
fails 2 'got both' $attn info new --preset gpt2

for value in x 0 -1 1.5 1e3 "" " 1" 1x 99999999999999999999 0x10; do
    fails 2 'layers: got .* expected a whole number from 1' $train --layers "$value"
done
for value in x nan inf 1e999 "" 0x1p3 "1 " --1 2; do
    fails 2 'dropout: got .* expected a number from 0' $train --dropout "$value"
done
for value in -1 x 18446744073709551616 1.0; do
    fails 2 'seed: got .* expected a whole number' $train --seed "$value"
done
fails 2 'did you mean swiglu' $train --activation swigul
fails 2 'expected post or pre' $train --norm-placement middle
fails 2 'expected a deviation' $train --init much
fails 2 'init: got "-0.1"' $train --init -0.1
fails 2 'multiple of the 3 heads' $train --heads 3
fails 2 'nearest is gpt2' $train --preset gpt3
fails 2 'no decoder' $train --preset bert-base
fails 2 'expected at most the 10 of --decay-steps' $train --warmup 20 --decay-steps 10
fails 2 'min-lr: got 0.1, expected at most' $train --min-lr 0.1
fails 2 'weight-decay: got 0.1 with --optimizer adam' $train --optimizer adam --weight-decay 0.1
fails 2 'monograph' $train --schedule monograph --lr 0.1
fails 2 'goes with no --resume' $train --resume --overwrite
fails 2 'nothing to go on with' $attn train --out new --resume

: >empty.txt
printf 'good \303\251 text, then \377' >bytes.txt
printf 'short\n' >short.txt
fails 2 'missing.txt: cannot be opened' $train --data missing.txt
fails 2 'is a folder' $train --data .
fails 2 'is empty' $train --data empty.txt
fails 2 'offset 19, ' $train --data bytes.txt
fails 2 'got 6 tokens, expected at least 19' $train --data short.txt
fails 2 'is a file' $train --out text.txt
fails 2 'is a file' $train --out text.txt/deeper
[ ! -e new ] || wrong "a folder was made for bad input"

status 0 $train --steps 2
fails 2 'holds a run already' $train --steps 2
fails 2 'missing.txt: cannot be opened' $attn eval --model new --data missing.txt
fails 2 'is a folder' $attn eval --model new --data new
fails 2 'is empty' $attn eval --model new --data empty.txt
fails 2 'offset 19, ' $attn eval --model new --data bytes.txt
printf 'a' >one.txt
fails 2 'at least 2' $attn eval --model new --data one.txt
printf 'caf\303\251 caf\303\251' >unknown.txt
fails 2 'no symbol for' $attn eval --model new --data unknown.txt
for command in "eval --data text.txt --model" "generate --model" info; do
    fails 2 'cannot be opened' $attn $command nowhere
    fails 2 'holds no model.safetensors' $attn $command .
    fails 2 'attn' $attn $command text.txt
done
fails 2 'no symbol for' $attn generate --model new --prompt "$(printf '\303\251')"
fails 2 'at least one token' $attn generate --model new --prompt ""
fails 2 'top-p: got "0"' $attn generate --model new --top-p 0
fails 2 'temperature: got "nan"' $attn generate --model new --temperature nan
fails 2 'nearest is gpt-char' $attn info --preset gptchar
fails 2 'positions are learned' $attn info --preset gpt2 --length 1025
fails 2 'length: got "0"' $attn info --preset gpt2 --length 0

# a run keeps its settings
fails 2 'layers: differs' $attn train --out new --resume --layers 2
fails 2 'lr: differs' $attn train --out new --resume --lr 0.5
fails 2 'taken 2 steps already' $attn train --out new --resume --steps 1
fails 2 'another data set' $attn train --out new --resume --steps 3 --data "$ATTN_SOURCE/LICENSE"
status 0 $attn train --out new --resume --layers 1 --lr 0.001 --steps 3
cp new/checkpoint.safetensors whole
head -c 1000 whole >new/checkpoint.safetensors
fails 2 'checkpoint.safetensors' $attn train --out new --resume --steps 4
cp new/model.safetensors new/checkpoint.safetensors
fails 2 'checkpoint.safetensors' $attn train --out new --resume --steps 4
done_with_tests
