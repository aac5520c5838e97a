#!/bin/sh
# The binding in rust/ and its program: rustc alone, no crate.
command -v rustc >/dev/null || exit 77
. "$(dirname "$0")/installed.inc"
# pkg-config's -L is rustc's as well; the -l stands in rust/sys.rs
# shellcheck disable=SC2046 # several words
rustc --edition 2021 -D warnings -o "$work/program" "$here/rust/main.rs" $(pkg-config --libs-only-L libattn)
"$work/program" "$work"
