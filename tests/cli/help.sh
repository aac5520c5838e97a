#!/bin/sh
# help texts, the version, and the manual page: complete, and of one mind
. "$(dirname "$0")/support.inc"

for call in help --help -h "help help" version --version "help train" "train --help" "train --steps 3 --help" "help generate" "help decode" "help eval" "help info" "help inspect" "help approximate"; do
    status 0 $attn $call
    [ -s out ] || wrong "nothing printed: attn $call"
    [ ! -s err ] || wrong "standard error is not empty: attn $call"
done
status 2 $attn
[ -s out ] || wrong "attn alone does not show help"

page=$ATTN_SOURCE/docs/attn.1
for command in train generate decode eval info inspect approximate; do
    $attn help $command >text
    grep -q "attn $command" text || wrong "help $command shows no call"
    grep -q Examples text || wrong "help $command has no example"
    for name in $(sed -n 's/^  --\([a-z0-9-]*\).*/\1/p' text); do
        [ "$name" = help ] || grep -q "Fl ..$name\b" "$page" || wrong "--$name of $command is not in attn.1"
    done
    awk 'length > 140 { exit 1 }' text || wrong "help $command has a line of more than 140 columns"
done
for name in $(grep -o 'Fl ..[a-z0-9-]*' "$page" | sed 's/Fl ..//' | sort -u); do
    grep -q -e "--$name\b" "$ATTN_SOURCE"/src/cli/*.c || $attn help train | grep -q -e "--$name\b" || $attn help approximate | grep -q -e "--$name\b" || $attn help generate | grep -q -e "--$name\b" ||
        wrong "--$name of attn.1 is no flag"
done
# what must be there under these names
for name in data out task tokens preset layers heads width feed-forward context batch steps decay-steps dropout activation norm-placement norm-epsilon \
    positions tie init no-bias optimizer lr min-lr warmup beta1 beta2 epsilon weight-decay l2 clip schedule accumulate seed eval-every threads resume; do
    $attn help train | grep -q -e "^  --$name\b" || wrong "attn train has no --$name"
done
for name in model prompt tokens temperature top-k top-p seed; do
    $attn help generate | grep -q -e "^  --$name\b" || wrong "attn generate has no --$name"
done
for name in valid source target threshold encoder-layers decoder-width batch-tokens bucket label-smoothing activation-dropout attention-dropout choose \
    average patience; do
    $attn help train | grep -q -e "^  --$name\b" || wrong "attn train has no --$name"
done
for name in model input beam nbest length-penalty batch scores json; do
    $attn help decode | grep -q -e "^  --$name\b" || wrong "attn decode has no --$name"
done
done_with_tests
