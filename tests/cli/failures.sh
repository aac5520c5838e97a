#!/bin/sh
# a disk that is full, a folder that goes away, a reader that leaves
. "$(dirname "$0")/support.inc"
train="$attn train --data text.txt $tiny"
status 0 $train --out run --steps 3

if [ -w /dev/full ]; then
    for call in help "info --preset gpt2" "eval --model run --data text.txt" "generate --model run"; do
        $attn $call >/dev/full 2>err
        got=$?
        [ $got = 1 ] || wrong "exit status $got, expected 1: attn $call >/dev/full"
        [ "$(wc -l <err | tr -d ' ')" = 1 ] || wrong "lines on standard error of attn $call: $(cat err)"
    done
fi

for call in "help train" "info --preset gpt2" "generate --model run --tokens 20000"; do
    { $attn $call 2>err; echo $? >code; } | head -c 1 >/dev/null
    [ "$(cat code)" = 0 ] || wrong "exit status $(cat code), expected 0: attn $call | head"
    [ ! -s err ] || wrong "attn $call | head: $(cat err)"
done

# files may not grow: the training ends, says so once, and exits with 1
{
    (
        ulimit -f 2
        exec $train --out limited --steps 20 --eval-every 5
    ) 2>err
    echo $? >code
} | cat >out
[ "$(cat code)" = 1 ] || wrong "exit status $(cat code), expected 1 with a full disk"
[ "$(wc -l <err | tr -d ' ')" = 1 ] || wrong "a full disk: $(wc -l <err) lines: $(head -c 400 err)"
grep -q 'step 20/20' out || wrong "the training did not go on"

# the folder goes away while training: it is made again, and what is trained has a place
$train --out gone --steps 1000000 --eval-every 50 >out 2>err &
process=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    [ -s gone/checkpoint.safetensors ] && break
    sleep 0.5
done
mv gone away
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    [ -s err ] && break
    sleep 0.5
done
kill -INT $process
wait $process
got=$?
[ $got = 130 ] || wrong "exit status $got, expected 130 for a folder that went away"
[ "$(wc -l <err | tr -d ' ')" = 1 ] || wrong "a folder that went away: $(wc -l <err) lines: $(head -c 400 err)"
[ -s away/checkpoint.safetensors ] || wrong "what was saved before is not there"
[ -s gone/checkpoint.safetensors ] || wrong "what was trained after the folder went away is lost"

if [ "$(id -u)" != 0 ]; then
    mkdir locked
    chmod 555 locked
    fails 1 'locked/' $train --out locked --steps 3
fi

# a training that diverges says so and keeps what was saved
fails 1 'not finite' $train --out wild --steps 60 --lr 1000 --clip 0 --schedule constant --warmup 0 --init 1000
done_with_tests
