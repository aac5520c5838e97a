#!/bin/sh
# a model from its training to its use, for both kinds of tokens
. "$(dirname "$0")/support.inc"

# valid FILE: JSON, as far as somebody can tell
valid() {
    command -v python3 >/dev/null || return 0
    python3 -c 'import json, sys; [json.loads(line) for line in ([open(sys.argv[1]).read()] if len(sys.argv) < 3 else open(sys.argv[1]))]' "$@" ||
        wrong "$1 is no JSON: $(head -c 200 "$1")"
}

status 0 $attn train --data text.txt --out run $tiny --steps 150 --lr 0.01 --eval-every 50
for file in log.jsonl model.safetensors checkpoint.safetensors loss.svg; do [ -s run/$file ] || wrong "no $file"; done
[ ! -s err ] || wrong "standard error is not empty: $(cat err)"
valid run/log.jsonl lines
first=$(sed -n '1s/.*"loss": \([0-9.]*\).*/\1/p' run/log.jsonl)
below "$(value run/log.jsonl loss)" "$(awk -v a="$first" 'BEGIN { print 0.85 * a }')" "training loss does not fall"
for key in step loss valid_loss lr grad_norm tokens_per_second; do
    [ "$(grep -c "\"$key\"" run/log.jsonl)" = "$(wc -l <run/log.jsonl | tr -d ' ')" ] || wrong "reports without $key"
done
[ "$(grep -c '"valid_loss": [0-9]' run/log.jsonl)" = 3 ] || wrong "expected 3 evaluations"
[ "$(value run/log.jsonl step)" = 150 ] || wrong "the last step is not reported"
find run -name '*.tmp' | grep . && wrong "temporary files are left"

# the validation loss of the log is that of eval on the last tenth
bytes=$(wc -c <text.txt)
tail -c "$((bytes - bytes * 9 / 10))" text.txt >last.txt
status 0 $attn eval --model run --data last.txt --json
valid out
logged=$(value run/log.jsonl valid_loss) measured=$(value out loss)
awk -v a="$logged" -v b="$measured" 'BEGIN { d = a - b; exit !(d < 1e-4 && d > -1e-4) }' || wrong "valid_loss $logged, but eval says $measured"
[ "$(value out tokens)" = "$(($(wc -c <last.txt) - 1))" ] || wrong "eval does not score each token but the first"
awk -v l="$measured" -v p="$(value out perplexity)" 'BEGIN { d = exp(l) / p - 1; exit !(d < 1e-5 && d > -1e-5) }' || wrong "perplexity is not e to the loss"
status 0 $attn eval --model run --data last.txt
grep -q perplexity out || wrong "eval says no perplexity"

# text: the prompt, then as many tokens as asked for, past the context; the same seed, the same text
status 0 $attn generate --model run --prompt "attn_" --tokens 100 --seed 5
cp out a
[ "$(wc -c <a | tr -d ' ')" = 105 ] || wrong "expected 105 bytes of text, got $(wc -c <a)"
[ "$(head -c 5 a)" = attn_ ] || wrong "the text does not begin with the prompt"
status 0 $attn generate --model run --prompt "attn_" --tokens 100 --seed 5 --threads 1
same a out "the same seed"
status 0 $attn generate --model run --prompt "attn_" --tokens 100 --seed 6
cmp -s a out && wrong "another seed gives the same text"
status 0 $attn generate --model run --prompt "a prompt longer than the context of the model" --tokens 3 --temperature 0
[ "$(wc -c <out | tr -d ' ')" = 48 ] || wrong "a long prompt: got $(wc -c <out) bytes"
status 0 $attn generate --model run --tokens 20 --top-k 3 --top-p 0.9 --json
valid out
[ "$(value out tokens)" = 20 ] || wrong "generate --json counts $(value out tokens) tokens"
status 0 $attn generate --model run --prompt x --tokens 0
[ "$(cat out)" = x ] || wrong "--tokens 0"

# bytes: any file, and only whole characters on the way out
printf 'na\303\257ve \342\202\254 \377\n%.0s' 1 2 3 4 5 6 7 8 9 10 11 12 >bytes.txt
status 0 $attn train --data bytes.txt --out bytes --tokens bytes $tiny --steps 30 --lr 0.01
status 0 $attn eval --model bytes --data bytes.txt --json
valid out
status 0 $attn generate --model bytes --prompt "na" --tokens 40 --json
valid out
status 0 $attn generate --model bytes --prompt "$(printf '\303\257')" --tokens 40

# each setting of the model and of training makes a run
for flags in "--activation swiglu --norm-placement post --positions sinusoidal --tie none --no-bias" "--init xavier --activation geglu --positions none" \
    "--optimizer adam --schedule monograph --l2 1e-4" "--schedule inverse-sqrt --accumulate 2" "--schedule linear --clip 0 --dropout 0.2" \
    "--schedule constant --norm-epsilon 1e-6 --init 0.05 --beta1 0.8 --beta2 0.95 --epsilon 1e-7" "--preset transformer-base" "--task lm --tokens bytes"; do
    status 0 $attn train --data text.txt --out each --overwrite $flags $tiny --steps 3
    status 0 $attn generate --model each --prompt a --tokens 3
done

# descriptions
status 0 $attn info run
grep -q 'self_attention' out || wrong "info names no modules"
status 0 $attn info run --json --length 8 --batch 3
valid out
status 0 $attn info run/checkpoint.safetensors
for preset in transformer-base transformer-big gpt2 bert-base t5-small llama-7b palm-8b vit-base gpt-char; do
    status 0 $attn info --preset $preset --json
    valid out
    cp out $preset.json
    status 0 $attn info --preset $preset --batch 2
done
[ "$(grep -m1 '"parameters": [0-9]*,$' gpt2.json | tr -dc 0-9)" = 124439808 ] || wrong "GPT-2 has 124,439,808 parameters"
[ "$(grep -m1 '"parameters": [0-9]*,$' llama-7b.json | tr -dc 0-9)" = 6738415616 ] || wrong "LLaMA has 6,738,415,616 parameters"

# the chart: well-formed, whatever the file is called
cp text.txt 'a<b>&"c.txt'
status 0 $attn train --data 'a<b>&"c.txt' --out chart $tiny --steps 3
grep -q 'a&lt;b&gt;&amp;&quot;c.txt' chart/loss.svg || wrong "the chart's text is not escaped"
! command -v python3 >/dev/null || python3 -c 'import sys, xml.dom.minidom as x; [x.parse(f) for f in sys.argv[1:]]' run/loss.svg chart/loss.svg || wrong "loss.svg is no XML"
done_with_tests
