# shellcheck shell=bash
# What the real clients' `setup` scripts share. Each of them takes `install`, `build` or `list`.
# Everything lies in target/real-clients; downloads are kept in its `download`.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
out_dir=$root/target/real-clients
download=$out_dir/download
venv=$out_dir/venv
cuda_dir=$out_dir/cuda/lib
# Of the simulated CUDA, what every client needs.
cuda_needed=(cuda/lib/libcuda.so.1 cuda/lib/libcudart.so.13 cuda/lib/libcublas.so.13)
gguf_version=0.19.0
numpy_version=2.4.6

# Status 3: nothing is wrong with the project, but this machine can't have the client.
cannot_have() {
    echo "real-clients: cannot be had: $*" >&2
    exit 3
}

fail() {
    echo "real-clients: $*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

package_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Installs the Debian packages that are named; none is no work.
install_packages() {
    [ $# -gt 0 ] || return 0
    command -v apt-get >/dev/null || cannot_have "the packages $* (no apt-get here)"
    as_root true 2>/dev/null || cannot_have "the packages $* (needs root)"
    as_root apt-get -qq update || cannot_have "the package lists (apt-get update failed)"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@" \
        >"$out_dir/apt.log" 2>&1 || cannot_have "the packages $* (see target/real-clients/apt.log)"
}

# The packages of these tools that are not there: any C compiler and any Python that can make virtual environments
# will do, not only the distribution's.
missing_tools() {
    command -v cc >/dev/null || echo gcc
    command -v c++ >/dev/null || echo g++
    python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3 python3-venv
}

check_x86_64() {
    [ "$(uname -m)" = x86_64 ] || cannot_have "$1 for $(uname -m)"
}

quiet_pip() { # VENV ARGUMENT...
    local in=$1
    shift
    "$in/bin/pip" -q --disable-pip-version-check "$@"
}

make_venv() { # DIR
    [ -x "$1/bin/pip" ] || python3 -m venv "$1" || cannot_have "a Python virtual environment"
}

# What writes the models of both llama.cpp clients.
install_model_writer() {
    make_venv "$venv"
    "$venv/bin/python" -c "
import importlib.metadata, sys
import gguf, numpy
sys.exit(importlib.metadata.version('gguf') != '$gguf_version')" 2>/dev/null ||
        quiet_pip "$venv" install "gguf==$gguf_version" "numpy==$numpy_version" ||
        cannot_have "the Python package gguf $gguf_version"
}

# True when the target is missing or older than one of the sources; a folder stands for all files below it.
out_of_date() { # TARGET SOURCE...
    local target=$1
    shift
    [ ! -e "$target" ] || [ -n "$(find "$@" -type f -newer "$target" -print -quit)" ]
}

# The simulated CUDA with every library that the installed clients want, into cuda/lib.
build_simulated_cuda() {
    "$root/tests/sim/build" "$out_dir/cuda/sim"
    "$root/tests/sim/vendor/build" "$out_dir/cuda" "$out_dir/cuda/sim" \
        "$out_dir"/torch/lib/python3.*/site-packages/torch/lib/*.so \
        "$out_dir"/llama_cuda/node_modules/@node-llama-cpp/linux-x64-cuda/bins/linux-x64-cuda/libggml-cuda.so
}

build_model() {
    local writer=$root/tests/clients/rocm/llama/write_model.py
    out_of_date "$out_dir/llama.gguf" "$writer" || return 0
    "$venv/bin/python" "$writer" "$out_dir/llama.gguf.new"
    mv "$out_dir/llama.gguf.new" "$out_dir/llama.gguf"
}

# NAME ready|missing: a client is ready when all that its run needs is there.
say_state() { # NAME NEEDED...
    local name=$1 needed state=ready
    shift
    for needed in "$@"; do
        [ -e "$out_dir/$needed" ] || state=missing
    done
    echo "$name $state"
}

# Ends each setup script: runs the function that its argument names.
run_step() {
    case ${1:-} in
    install | build | list) "$1" ;;
    *)
        echo "usage: $0 install|build|list" >&2
        exit 2
        ;;
    esac
}
