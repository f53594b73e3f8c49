#!/bin/sh
# Writes the locks anew: the exact packages of an image, each with its hashes.
#
#     deploy/locks/renew.sh                             needs uv; PyPI or a mirror of it
#     UV_FIND_LINKS=FOLDER deploy/locks/renew.sh        where the CPU wheel of torch lies in a folder
#
# Versions are those of deploy/constraints.txt. Images are Python 3.11 on x86-64 Linux: for another
# Python or processor change the two options below and keep the files apart.
set -eu
cd "$(dirname "$0")/../.."

lock() { # lock NAME SOURCE [OPTION]...
  name=$1 source=$2
  shift 2
  made=$(mktemp)
  uv pip compile "$source" "$@" --quiet --output-file "$made" \
    --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
    --constraint deploy/constraints.txt --generate-hashes \
    --no-header --no-annotate --no-emit-index-url --no-emit-find-links > /dev/null
  {
    echo "# $(sed -n "s/^# $name: //p" deploy/locks/renew.sh)"
    echo "# Made by deploy/locks/renew.sh; Python 3.11, x86-64 Linux."
    cat "$made"
  } > "deploy/locks/$name.txt"
  rm "$made"
}

# cpu: What a CPU image runs.
if [ -n "${UV_FIND_LINKS:-}" ]; then
  lock cpu pyproject.toml
else
  lock cpu pyproject.toml --torch-backend cpu
fi
# cuda: What a CUDA image runs.
UV_FIND_LINKS= lock cuda pyproject.toml
# audio: What the extra audio adds to an image.
# tables: What the extra tables adds to an image.
# vision: What the extra vision adds to an image.
for extra in audio tables vision; do
  wanted=$(mktemp --suffix=.in)
  sed -n "s/^$extra = \[\(.*\)\].*/\1/p" pyproject.toml | tr -d '" ' | tr ',' '\n' > "$wanted"
  UV_FIND_LINKS= lock "$extra" "$wanted"
  rm "$wanted"
done
# build: What builds the wheel and the bill of materials; nothing of it is in the image.
lock build deploy/locks/build.in
