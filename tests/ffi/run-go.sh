#!/bin/sh
# The package in go/attn and its program, by cgo; nothing is fetched.
command -v go >/dev/null || exit 77
. "$(dirname "$0")/installed.inc"
# A new cache each time: go does not see that headers outside the package have changed.
GOCACHE=$work/cache GOPATH=$work/go GOPROXY=off GOTOOLCHAIN=local GO111MODULE=on GOFLAGS='' CGO_ENABLED=1
export GOCACHE GOPATH GOPROXY GOTOOLCHAIN GO111MODULE GOFLAGS CGO_ENABLED
cd "$here/go"
go vet ./...
go build -o "$work/program" .
"$work/program" "$work"
