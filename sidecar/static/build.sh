#!/bin/sh
# Build the supervisor as one static executable: build.sh OUTPUT. It takes seconds.
#
# Debian trixie has what it needs: gcc libc6-dev libpython3.13-dev python3.13. For another architecture set CC and
# STRIP to its compiler and strip, and LIBPYTHON to a folder in which its libpython3.13-dev is unpacked (the byte code is
# the same for all). docs/decisions/0024-the-supervisor-is-one-static-executable.md says why it is made so.
#
# The same sources and packages give the same bytes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
output=$(realpath "$1")
python=${PYTHON:-python3.13}
# Relative to the root of the package, so that one of another architecture is found in the same way.
triplet=$(${CC:-gcc} -dumpmachine)
config=${LIBPYTHON:-}/usr/lib/python3.13/config-3.13-$triplet
include=${LIBPYTHON:-}/usr/include
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$python" -IS -B "$here/freeze.py" "$config/config.c"
# `pyconfig.h` of Debian includes that of the architecture as <TRIPLET/python3.13/pyconfig.h>.
${CC:-gcc} -O2 -Wall -Wextra -Werror -Wno-missing-field-initializers -I. -I"$include/python3.13" -idirafter "$include" \
    -c -o main.o "$here/main.c"
${CC:-gcc} -c -o frozen.o frozen.S
# The linker warns of functions that would load parts of glibc from the image (users, groups, names of hosts). The
# supervisor calls none of them.
${CC:-gcc} -static -no-pie -Wl,--gc-sections -Wl,-O1 -Wl,--build-id=none -o supervisor main.o frozen.o \
    "$config/libpython3.13.a" -lm 2> link.log || { cat link.log >&2; exit 1; }
grep -v 'in function\|: warning: Using' link.log >&2 || true
${STRIP:-strip} supervisor
chmod 755 supervisor
mv supervisor "$output"
