#!/bin/sh
# attn inspect: a picture with a map for each head and the text's tokens, refusals, the same bytes for any number of threads
. "$(dirname "$0")/support.inc"

for positions in rotary t5 alibi relative; do
    status 0 $attn train --data text.txt --out run-$positions $tiny --layers 2 --positions $positions --steps 3 --eval-every 3
done
for positions in rotary t5 alibi relative; do
    status 0 $attn generate --model run-$positions --prompt "the" --tokens 40 --temperature 0
    status 0 $attn inspect --model run-$positions --text "int64_t <rows, heads>" --out map-$positions.svg
    grep -q '4 maps of 21 tokens' out || wrong "what was drawn is not said: $(cat out)"
done
[ "$(grep -c '>head [01]</text>' map-rotary.svg)" = 8 ] || wrong "expected 4 maps and 4 lines of entropy"
grep -q '&lt;</text>' map-rotary.svg || wrong "a token is not escaped"
tail -n 1 map-rotary.svg | grep -q '^</svg>$' || wrong "the picture does not end"
status 0 $attn inspect --model run-rotary --text "int64_t <rows, heads>" --out again.svg --threads 1
cmp -s map-rotary.svg again.svg || wrong "another picture with one thread"
fails 2 '\-\-model: needed' $attn inspect --text a --out x.svg
fails 2 '\-\-text: needed' $attn inspect --model run-rotary --out x.svg
fails 2 '\-\-out: needed' $attn inspect --model run-rotary --text a
fails 2 'expected 1 to 64' $attn inspect --model run-rotary --out x.svg --text "$(head -c 65 text.txt)"
fails 2 'expected 1 to 64' $attn inspect --model run-rotary --out x.svg --text ""
fails 1 'cannot be written' $attn inspect --model run-rotary --out no/such/x.svg --text a
[ ! -e x.svg ] || wrong "a refused call left a picture"
done_with_tests
