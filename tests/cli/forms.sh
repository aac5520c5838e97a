#!/bin/sh
# linear forms of attention by the program: text that decodes with a state of constant size, pairs with a Linformer, descriptions, refusals
. "$(dirname "$0")/support.inc"

awk 'BEGIN { for (i = 0; i < 400; i++) printf "the cat sat on the mat %d. ", i % 7; print "" }' >text.txt
awk 'BEGIN { for (i = 0; i < 120; i++) printf "ab%dc\tA B %d C\n", i % 10, i % 10 }' >train.tsv
head -20 train.tsv >dev.tsv
common="--layers 1 --heads 2 --width 16 --feed-forward 32 --seed 3"
pairs="--task seq2seq --data train.tsv --valid dev.tsv"

for form in linear performer; do
    status 0 $attn train --data text.txt --out $form --form $form $common --context 16 --batch 8 --steps 40 --lr 0.01
    status 0 $attn generate --model $form --prompt "the " --tokens 40 --temperature 0
    [ -s out ] || wrong "$form: nothing was generated"
    status 0 $attn eval --model $form --data text.txt --json
    status 0 $attn info $form
done
grep -q 'form of attention *Performer' out || wrong "info says no form"
grep -q 'features of a head *32' out || wrong "info says no features: $(grep features out)"
status 0 $attn info linear
grep -q 'form of attention *linear' out || wrong "info says no form"
! grep -q 'features of a head' out || wrong "info speaks of features of a linear form"

status 0 $attn train $pairs --out linformer --form linformer --projected 4 $common --batch 20 --steps 20
status 0 $attn info linformer
grep -q 'projected rows *4' out || wrong "info says no projected rows"
cut -f1 dev.tsv >words
status 0 $attn decode --model linformer --input words --beam 2
[ "$(wc -l <out)" -eq 20 ] || wrong "decode gave $(wc -l <out) lines"
status 0 $attn train --out linformer --resume --steps 25

fails 2 'projected: needed with --form linformer' $attn train $pairs --out x --form linformer
fails 2 'projected: goes with --form linformer' $attn train $pairs --out x --projected 4
fails 2 'features: goes with --form performer' $attn train $pairs --out x --form linear --features 8
fails 2 'form: got linformer' $attn train --data text.txt --out x --form linformer --projected 4
[ ! -e x ] || wrong "a refused call left something"
done_with_tests
