#!/bin/sh
# The library cannot end the process or print, and what it exports is what the headers declare and the version script lists.
set -eu
root=${ATTN_SOURCE:-$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)}
library=${ATTN_LIBRARY:-$root/build/libattn.so}
command -v nm >/dev/null || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

sh "$root/cmake/update-map.sh" --names >"$work/declared"
sed -n 's/^ *\([A-Za-z_0-9]*\);$/\1/p' "$root/cmake/attn.map" | LC_ALL=C sort >"$work/mapped"
nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | LC_ALL=C sort >"$work/exported"
if ! diff "$work/declared" "$work/mapped"; then
    echo "include/attn (<) and cmake/attn.map (>) disagree: run cmake/update-map.sh"
    bad=1
fi
if ! diff "$work/declared" "$work/exported"; then
    echo "include/attn (<) and $library (>) disagree"
    bad=1
fi
if grep -v '^attn_[a-z]' "$work/exported"; then
    echo "exported without the prefix attn_"
    bad=1
fi

if [ -z "${ATTN_SANITIZE:-}" ]; then
    nm -D --undefined-only "$library" | awk '{ sub(/@.*/, "", $2); print $2 }' | LC_ALL=C sort -u >"$work/imported"
    cat >"$work/banned" <<'END'
exit _exit _Exit quick_exit abort __assert_fail __assert raise kill tgkill signal sigaction pthread_exit longjmp siglongjmp __longjmp_chk
printf vprintf fprintf vfprintf dprintf vdprintf __printf_chk __vprintf_chk __fprintf_chk __vfprintf_chk __dprintf_chk __vdprintf_chk
puts putchar putc fputs fputc putchar_unlocked fputs_unlocked perror psignal err errx warn warnx error syslog stdout stderr
system popen fork execve atexit __cxa_atexit setenv putenv setlocale fesetround feenableexcept
GOMP_parallel __kmpc_fork_call
END
    tr ' ' '\n' <"$work/banned" | LC_ALL=C sort -u >"$work/banned.sorted"
    if LC_ALL=C comm -12 "$work/imported" "$work/banned.sorted" | grep .; then
        echo "the library imports what ends the process, prints or changes its state"
        bad=1
    fi
fi
[ $bad = 0 ] && echo "$(wc -l <"$work/exported") names exported, declared and mapped"
exit $bad
