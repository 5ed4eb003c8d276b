#!/bin/sh
# A Debian image from the package archive, for machines that reach no image registry:
#
#   deploy/base-image.sh localhost/debian:bookworm
#   docker build --build-arg BASE=localhost/debian:bookworm …
#
# Needs root and mmdebstrap. ENGINE is docker unless set; MIRROR is an archive or a sources file (by default this
# machine's own, so that the image can install from where the machine does).
set -eu
name=${1:?usage: base-image.sh NAME}
engine=${ENGINE:-docker}
suite=${SUITE:-bookworm}
mirror=${MIRROR:-}
for own in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
    if [ -z "$mirror" ] && [ -s "$own" ]; then mirror=$own; fi
done
command -v mmdebstrap >/dev/null || { echo "mmdebstrap is missing: apt-get install mmdebstrap" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mmdebstrap --quiet --variant=minbase --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' "$suite" "$folder/root.tar" $mirror
$engine import "$folder/root.tar" "$name"
