#!/bin/sh
# sources to targets: training, decoding, scoring, going on, and what is wrong with a file of pairs
. "$(dirname "$0")/support.inc"

make_pairs 5
small="--layers 1 --heads 2 --width 32 --feed-forward 64 --batch 32 --lr 0.01 --dropout 0 --label-smoothing 0"
pairs="--task seq2seq --data train.tsv --valid dev.tsv"

status 0 $attn train $pairs --out run $small --steps 300 --eval-every 50
[ ! -s err ] || wrong "standard error is not empty: $(cat err)"
for file in log.jsonl model.safetensors checkpoint.safetensors loss.svg error.svg; do [ -s run/$file ] || wrong "no $file"; done
[ "$(grep -c '"word_error": [0-9]' run/log.jsonl)" = 6 ] || wrong "expected 6 evaluations with word errors"
best=$(sed -n 's/.*"word_error": \([0-9.]*\).*/\1/p' run/log.jsonl | sort -g | head -1)
below "$best" 20 "the model learns nothing"
[ "$(grep -c '<circle[^>]*r="3.2"' run/error.svg)" = 14 ] || wrong "error.svg has not six evaluations of two rates and a legend"
last=$(sed -n 's/.*"word_error": \([0-9.]*\).*/\1/p' run/log.jsonl | tail -1)
grep -q "$(printf '%.2f %%' "$last")" run/error.svg || wrong "error.svg does not end with the last word error $last"
! command -v python3 >/dev/null || python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' run/error.svg || wrong "error.svg is no XML"
grep -q "kept the model of step" out || wrong "no word about the model that is kept"

# eval by greedy search says what the log says of the best evaluation
status 0 $attn eval --model run --data dev.tsv --beam 1 --json
cp out greedy
awk -v a="$(value greedy word_error)" -v b="$best" 'BEGIN { d = a - b; exit !(d < 1e-4 && d > -1e-4) }' || wrong "eval: $(value greedy word_error), log: $best"
[ "$(value greedy words)" = 60 ] || wrong "eval counts $(value greedy words) words"
status 0 $attn eval --model run --data dev.tsv --json --batch 7
below "$(value out word_error)" 20 "beam search"
status 0 $attn eval --model run --data dev.tsv --task seq2seq
for word in "word error" "token error" loss calibration; do grep -q "$word" out || wrong "eval says no $word"; done

# decoding: a line for each, in order, whatever the batch and the threads; an empty line is an empty target
cut -f1 dev.tsv >words
status 0 $attn decode --model run --input words
cp out decoded
[ "$(wc -l <decoded | tr -d ' ')" = 60 ] || wrong "expected 60 lines"
cut -f1 decoded >first
same first words "the sources of decode"
matches=$(paste dev.tsv decoded | awk -F '\t' '$2 == $4' | wc -l)
[ "$matches" -ge 48 ] || wrong "decode gets $matches of 60 right"
status 0 $attn decode --model run --input words --batch 1
same out decoded "batches of 1"
status 0 $attn decode --model run --input words --batch 7 --threads 1
same out decoded "batches of 7 and one thread"

# where in the source each token of the target comes from: the target of decode, and the end of both
line=$(awk 'length($1) == 4 { print NR; exit }' words)
said=$(sed -n "${line}p" decoded | cut -f2)
status 0 $attn inspect --model run --text "$(sed -n "${line}p" words)" --out map.svg
grep -q "^map.svg: 2 maps of $(($(echo "$said" | wc -w) + 1)) target and 5 source tokens\$" out || wrong "not the maps of $said: $(cat out)"
for word in $said end; do grep -q ">$word</text>" map.svg || wrong "no row $word"; done
[ "$(grep -c '>end</text>' map.svg)" = 3 ] || wrong "the ends of two maps and of their rows are not there"
[ "$(grep -c '<rect[^>]*fill-opacity' map.svg)" -ge 10 ] || wrong "the maps are empty"
! grep -q '#eef0f3' map.svg || wrong "a part of the source is said to be hidden"
status 0 $attn inspect --model run --text "$(sed -n "${line}p" words)" --out again.svg --threads 1
same map.svg again.svg "another picture with one thread"
fails 2 'expected 1 to 10' $attn inspect --model run --text "" --out no.svg
fails 2 'expected 1 to ' $attn inspect --model run --text "$(printf '%065d' 0 | tr 0 a)" --out no.svg
fails 1 'cannot be written' $attn inspect --model run --text ab --out no/such/map.svg
[ ! -e no.svg ] || wrong "a refused call left a picture"

printf 'ab\n\nce\tignored\n' >three
status 0 $attn decode --model run --input three --beam 3
[ "$(wc -l <out | tr -d ' ')" = 3 ] && [ "$(sed -n 2p out)" = "$(printf '\t')" ] || wrong "an empty line: $(cat out)"
$attn decode --model run --input - --beam 3 <three >piped 2>err || wrong "standard input"
same piped out "standard input"
status 0 $attn decode --model run --input words --nbest 3 --beam 4
[ "$(wc -l <out | tr -d ' ')" = 180 ] || wrong "expected 3 lines a word, got $(wc -l <out)"
cut -f1,2 out | sed -n 1,3p | cut -f2 | tr '\n' ' ' | grep -q '^1 2 3 $' || wrong "ranks: $(head -3 out)"
status 0 $attn decode --model run --input words --nbest 2 --json
! command -v python3 >/dev/null || python3 -c 'import json,sys
rows = [json.loads(l) for l in open("out")]
assert len(rows) == 120 and all(set(r) == {"source", "target", "rank", "score"} for r in rows)
assert all(r["score"] <= 0 for r in rows)' || wrong "decode --json"
status 0 $attn decode --model run --model run --input words
same out decoded "a model twice is the model"

# the examples that a C programmer starts from
if [ -x "${ATTN_BUILD:-}/tests/examples/07_pronounce" ]; then
    word=$(sed -n 1p words)
    [ "$("$ATTN_BUILD/tests/examples/07_pronounce" run/model.safetensors "$word")" = "$(sed -n 1p decoded | cut -f2)" ] || wrong "07_pronounce"
    sort decoded >sorted
    "$ATTN_BUILD/tests/examples/08_server" run/model.safetensors 3 <words | sort >served
    same sorted served "08_server"
fi

# interrupted and resumed: the same files
for steps in 110 300; do
    more="$small --out parts --eval-every 50"
    if [ $steps = 110 ]; then
        status 0 $attn train $pairs $more --steps 110 --decay-steps 300 --warmup 15 --average 3
    else
        status 0 $attn train --out parts --resume --steps 300
    fi
done
status 0 $attn train $pairs $small --out whole --eval-every 50 --steps 300 --decay-steps 300 --warmup 15 --average 3
same parts/checkpoint.safetensors whole/checkpoint.safetensors "resumed and whole"
status 0 $attn decode --model run --model whole --input words
[ "$(wc -l <out | tr -d ' ')" = 60 ] || wrong "two models"
[ "$(find whole -name 'snapshot-*' | wc -l | tr -d ' ')" = 3 ] || wrong "expected 3 snapshots: $(ls whole)"

# the mean of the last three, the least loss, the last, patience, buckets, other tokens, other sizes
for flags in "--average 2 --choose loss" "--choose last" "--bucket 40 --batch-tokens 100" "--source words --target characters" "--source bytes --target bytes" \
    "--encoder-layers 2 --decoder-width 16 --decoder-heads 1 --decoder-feed-forward 20" "--attention-dropout 0.1 --activation-dropout 0.1" "--threshold 1" \
    "--schedule monograph --warmup 20" "--schedule inverse-sqrt" "--positions rotary" "--context 20"; do
    set -- $flags
    case $flags in *monograph*) now=$(echo "$small" | sed 's/--lr 0.01//') ;; *) now=$small ;; esac
    status 0 $attn train $pairs --out each --overwrite $now "$@" --steps 6 --eval-every 3
    status 0 $attn decode --model each --input three --beam 2
    status 0 $attn eval --model each --data dev.tsv --beam 2
done
status 0 $attn train $pairs --out patient $small --lr 0 --steps 100 --eval-every 5 --patience 3
[ "$(value patient/log.jsonl step)" = 20 ] || wrong "patience: the last step is $(value patient/log.jsonl step), expected 20"

# what is wrong with a file: file and line
with() { printf "$1" >bad.tsv; }
with 'ab\tA B\ncd\n'
fails 2 'bad.tsv:2: got one column' $attn train --task seq2seq --data bad.tsv --valid dev.tsv --out x
fails 2 'bad.tsv:2: got one column' $attn train --task seq2seq --data train.tsv --valid bad.tsv --out x
fails 2 'bad.tsv:2: got one column' $attn eval --model run --data bad.tsv
with 'ab\tA B\n\n\tC\n'
fails 2 'bad.tsv:3: the source is empty' $attn train --task seq2seq --data bad.tsv --valid dev.tsv --out x
with 'ab\tA B\ncd\t\n'
fails 2 'bad.tsv:2: the target is empty' $attn train --task seq2seq --data bad.tsv --valid dev.tsv --out x
with 'ab\tA B\ncd\t  \n'
fails 2 'bad.tsv:2: the target is empty' $attn train --task seq2seq --data bad.tsv --valid dev.tsv --out x
with 'ab\tA B\nc\377d\tC D\n'
fails 2 'bad.tsv:2: byte 2 of the line is not valid UTF-8' $attn train --task seq2seq --data bad.tsv --valid dev.tsv --out x
fails 2 'bad.tsv:2: byte 2' $attn decode --model run --input bad.tsv
with '\n\n'
fails 2 'has no line with a pair' $attn train --task seq2seq --data bad.tsv --valid dev.tsv --out x
: >empty
fails 2 'is empty' $attn train --task seq2seq --data empty --valid dev.tsv --out x
fails 2 'is empty' $attn decode --model run --input empty
fails 2 'is a folder' $attn train --task seq2seq --data . --valid dev.tsv --out x
fails 2 'cannot be opened' $attn train --task seq2seq --data gone.tsv --valid dev.tsv --out x
fails 2 'cannot be opened' $attn decode --model run --input gone
awk 'BEGIN { s = ""; for (i = 0; i < 60; i++) s = s "a"; print "ab\tA\n" s "\tA" }' >long.tsv
fails 2 'long.tsv:2: the source has 60 tokens' $attn train --task seq2seq --data train.tsv --valid long.tsv --out x --context 20
fails 2 'long.tsv:2: the source has 60 tokens' $attn decode --model run --input long.tsv
fails 2 'long.tsv:2: the source has 60 tokens' $attn eval --model run --data long.tsv
# an unseen symbol is the unknown token, unless there is none
printf 'abz\n' >unseen
status 0 $attn decode --model run --input unseen
status 0 $attn train $pairs --out strict $small --threshold 1 --steps 2
fails 2 'unseen:1: .*z' $attn decode --model strict --input unseen
# a byte order mark, carriage returns, a third column, and empty lines that are counted
{ printf '\357\273\277'; sed 's/$/\tthird\r/' train.tsv; printf '\n\r\n'; } >windows.tsv
status 0 $attn train --task seq2seq --data windows.tsv --valid dev.tsv --out windows $small --steps 300 --eval-every 50
grep -q '2 empty lines left out' out || wrong "empty lines are not counted: $(head -1 out)"
same windows/model.safetensors run/model.safetensors "byte order mark, carriage returns, third column"

# flags that do not go together
fails 2 'valid: needed' $attn train --task seq2seq --data train.tsv --out x
fails 2 'source: goes with' $attn train --data train.tsv --source words --out x
fails 2 'tokens: goes with' $attn train $pairs --tokens bytes --out x
fails 2 'has no encoder' $attn train $pairs --preset gpt-char --out x
fails 2 'nbest: got 6' $attn decode --model run --input words --nbest 6
fails 2 'model: needed' $attn decode --input words
fails 2 'input: needed' $attn decode --model run
fails 2 'holds a model for seq2seq' $attn eval --model run --data dev.tsv --task lm
fails 2 'has an encoder\|no vocabulary' $attn generate --model run
status 0 $attn train --data text.txt --out lm $tiny --steps 2
fails 2 'no model of' $attn decode --model lm --input words
fails 2 'other vocabularies' $attn decode --model run --model strict --input words
done_with_tests
