#!/bin/sh
# recurrent models by the program: pairs and text, going on, decoding, scores, descriptions, beside a Transformer in an ensemble, and refusals
. "$(dirname "$0")/support.inc"

make_pairs 4
cut -f1 dev.tsv >words
pairs="--task seq2seq --data train.tsv --valid dev.tsv"
common="--layers 1 --width 32 --batch 32 --lr 0.01 --dropout 0 --label-smoothing 0"
small="--model recurrent $common"

# it learns, and says what it is
status 0 $attn train $pairs --out run $small --steps 300 --eval-every 100
[ ! -s err ] || wrong "standard error is not empty: $(cat err)"
grep -q '^model  *lstm-attention: 1 encoder and 1 decoder layer, LSTM, width 32' out || wrong "the model is not named: $(grep '^model' out)"
best=$(sed -n 's/.*"word_error": \([0-9.]*\).*/\1/p' run/log.jsonl | sort -g | head -1)
below "$best" 20 "the model learns nothing"
status 0 $attn eval --model run --data dev.tsv --beam 1 --json
awk -v a="$(value out word_error)" -v b="$best" 'BEGIN { d = a - b; exit !(d < 1e-4 && d > -1e-4) }' || wrong "eval: $(value out word_error), log: $best"
status 0 $attn eval --model run --data dev.tsv --batch 7
status 0 $attn info run
for row in 'recurrent layers *LSTM' 'encoder both ways *yes' 'decoder attends *yes' 'scores *additive' 'decoder.readout' 'decoder.attention'; do
    grep -q "$row" out || wrong "info says no \"$row\""
done
for word in heads 'feed-forward' 'norm placement' 'activation'; do
    ! sed '/^parameters/,$d' out | grep -q -- "$word" || wrong "info speaks of $word: $(grep -- "$word" out)"
done
status 0 $attn info run --json --length 9 --batch 3
grep -q '"recurrence": *"LSTM"' out || wrong "info --json has no recurrence: $(cat out)"
grep -q '"forward_formula": *[1-9]' out || wrong "info --json has no formula"

# decoding: whatever the batch, the beam and the threads, the words in their order
status 0 $attn decode --model run --input words
cp out decoded
cut -f1 decoded >first
same first words "the sources of decode"
matches=$(paste dev.tsv decoded | awk -F '\t' '$2 == $4' | wc -l)
[ "$matches" -ge 48 ] || wrong "decode gets $matches of 60 right"
status 0 $attn decode --model run --input words --batch 7 --threads 1
same out decoded "batches of 7 and one thread"
status 0 $attn decode --model run --input words --nbest 3 --beam 4
[ "$(wc -l <out | tr -d ' ')" = 180 ] || wrong "expected 3 lines a word, got $(wc -l <out)"
status 0 $attn decode --model run --model run --input words
same out decoded "a model twice is the model"

status 0 $attn inspect --model run --text bcd --out map.svg
grep -q '^map.svg: 1 map of 4 target and 4 source tokens$' out || wrong "not one map: $(cat out)"

# beside a Transformer
status 0 $attn train $pairs --out attending $common --heads 2 --feed-forward 64 --steps 300 --eval-every 100
status 0 $attn decode --model attending --model run --input words
matches=$(paste dev.tsv out | awk -F '\t' '$2 == $4' | wc -l)
[ "$matches" -ge 48 ] || wrong "a Transformer and an LSTM get $matches of 60 right"
status 0 $attn eval --model run --model attending --data dev.tsv --json
below "$(value out word_error)" 20 "an LSTM and a Transformer"

# interrupted and resumed: the same files, with dropout
for steps in 25 60; do
    if [ $steps = 25 ]; then
        status 0 $attn train $pairs $small --dropout 0.2 --out parts --eval-every 20 --steps 25 --decay-steps 60 --warmup 5
    else
        status 0 $attn train --out parts --resume --steps 60
    fi
done
status 0 $attn train $pairs $small --dropout 0.2 --out whole --eval-every 20 --steps 60 --decay-steps 60 --warmup 5 --threads 1
same parts/checkpoint.safetensors whole/checkpoint.safetensors "resumed and whole"
same parts/model.safetensors whole/model.safetensors "models resumed and whole"
fails 2 'cell' $attn train --out parts --resume --steps 70 --cell tanh

# each flag makes a model that decodes
for flags in "--cell tanh --one-way --width 9 --score dot" "--score none --decoder-width 12" "--score bilinear --encoder-layers 2 --decoder-width 12" \
    "--score scaled-dot" "--preset g2p" "--preset lstm-attention --cell tanh --dropout 0.1"; do
    status 0 $attn train $pairs --out each --overwrite $small $flags --steps 4 --eval-every 2
    status 0 $attn decode --model each --input words --beam 2
    status 0 $attn info each
done
grep -q 'recurrent layers *tanh' out || wrong "--cell tanh: $(grep recurrent out)"
status 0 $attn train $pairs --out each --overwrite $small --score none --steps 2
status 0 $attn info each
grep -q 'decoder attends *no' out || wrong "--score none: $(grep attends out)"
fails 2 'without attention' $attn inspect --model each --text ab --out none.svg
! grep -q '  scores ' out || wrong "info names scores that are not there"
status 0 $attn train $pairs --out each --overwrite --preset lstm-attention --model transformer $common --heads 2 --feed-forward 64 --steps 2
status 0 $attn info each
grep -q 'positions *sinusoidal' out || wrong "a preset that becomes a Transformer: $(cat out)"
! grep -q recurrent out || wrong "a Transformer is called recurrent"
status 0 $attn info each --json
grep -q '"recurrence": *"none"' out || wrong "info --json has no recurrence: $(cat out)"
status 0 $attn info --preset lstm-attention

# a language model, longer than its context
status 0 $attn train --data text.txt --out lm --model recurrent --layers 1 --width 32 --context 16 --batch 8 --dropout 0 --steps 150 --lr 0.01 --eval-every 50
first=$(sed -n '1s/.*"loss": \([0-9.]*\).*/\1/p' lm/log.jsonl)
below "$(value lm/log.jsonl loss)" "$(awk -v a="$first" 'BEGIN { print 0.85 * a }')" "training loss does not fall"
status 0 $attn generate --model lm --prompt "attn_" --tokens 60 --seed 5
cp out a
[ "$(wc -c <a | tr -d ' ')" = 65 ] || wrong "expected 65 bytes of text, got $(wc -c <a)"
status 0 $attn generate --model lm --prompt "attn_" --tokens 60 --seed 5 --threads 1
same a out "the same seed"
status 0 $attn eval --model lm --data text.txt --json
status 0 $attn info lm
! grep -q 'encoder both ways\|decoder attends' out || wrong "info speaks of an encoder that is not there"

# one line each
fails 2 'cell: goes with --model recurrent' $attn train $pairs --out x --cell lstm
fails 2 'heads: goes with --model transformer' $attn train $pairs --out x --model recurrent --heads 2
fails 2 'form: goes with --model transformer' $attn train $pairs --out x --model recurrent --form linear
fails 2 'score: goes with --model recurrent' $attn train $pairs --out x --score dot
fails 2 'one-way: goes with --model recurrent' $attn train $pairs --out x --one-way
fails 2 'width: got 33, expected an even number' $attn train $pairs --out x $small --width 33
fails 2 'decoder.width' $attn train $pairs --out x $small --score dot --decoder-width 16
fails 2 'lm: holds a recurrent model' $attn inspect --model lm --text abc --out x.svg
fails 2 'has an encoder\|no vocabulary' $attn generate --model run
fails 2 'no model of' $attn decode --model lm --input words
[ ! -e x ] || wrong "a refused call left a folder"
[ ! -e x.svg ] || wrong "a refused call left a picture"
done_with_tests
