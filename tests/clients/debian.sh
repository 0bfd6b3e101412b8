# shellcheck shell=bash
# Packages of other Debians, unpacked into folders of their own. Nothing of them is installed on this machine: apt works in folders
# of its own, and packages are only unpacked. Who sources it sets `apt`, apt's own folder; beside it lies what apt says, in `$apt.log`.

mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
# Where packages are that the mirror has no more.
snapshot=https://snapshot.debian.org/archive/debian/20261030T083000Z
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

check_debian() { # WHAT
    check_x86_64 "$1"
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || cannot_have "$1 (no apt-get here)"
    [ -e "$keyring" ] || cannot_have "$1 (no $keyring, so that no signature could be checked)"
}

# A mirror may be older than its own date of expiry says; the signatures are checked all the same.
configure_apt() { # URI SUITE
    rm -rf "$apt"
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
    : >"$apt/status"
    cat >"$apt/debian.sources" <<END
Types: deb
URIs: $1
Suites: $2
Components: main
Architectures: amd64
Signed-By: $keyring
Check-Valid-Until: no
END
    cat >"$apt/apt.conf" <<END
Dir::State "$apt";
Dir::State::status "$apt/status";
Dir::State::lists "$apt/lists";
Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "$apt/debian.sources";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::main "/dev/null";
Dir::Etc::parts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::Log "$apt";
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Install-Recommends "0";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
END
}

own_apt() {
    APT_CONFIG=$apt/apt.conf apt-get -qq "$@" 2>>"$apt.log"
}

# With what they depend on, into the cache; or they alone, into the folder.
fetch() { # install|download PACKAGE...
    local how=$1
    shift
    case $how in
    install) own_apt install -y --download-only "$@" >/dev/null ;;
    download) (cd "$apt/cache/archives" && own_apt download "$@" >/dev/null) ;;
    esac
}

unpack_archives() { # INTO
    local into=$1 package
    rm -rf "$into" "$into.new"
    mkdir -p "$into.new"
    for package in "$apt"/cache/archives/*.deb; do
        dpkg-deb -x "$package" "$into.new" || cannot_have "what $package holds"
    done
    ls "$apt/cache/archives" | grep '[.]deb$' >"$into.packages"
    mv "$into.new" "$into"
}

# From the mirror, or from Debian's archive of all that it ever had. `.complete` says what is there.
have() { # INTO SUITE install|download PACKAGES
    local into=$1 suite=$2 how=$3 packages=$4 uri
    [ "$(cat "$into.complete" 2>/dev/null)" = "$packages" ] && return 0
    for uri in "$mirror" "$snapshot"; do
        configure_apt "$uri" "$suite"
        # shellcheck disable=SC2086 # a list of packages
        if own_apt update && fetch "$how" $packages; then
            unpack_archives "$into"
            rm -rf "$apt"
            echo "$packages" >"$into.complete"
            return 0
        fi
    done
    cannot_have "$packages (neither from $mirror nor from $snapshot; see $apt.log)"
}
