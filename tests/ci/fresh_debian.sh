#!/bin/bash
# A fresh Debian 12 in a folder, for tests of what is installed there:
#   fresh_debian.sh can                       whether one can be had here; else `skipped: why`, and the exit code is 77
#   fresh_debian.sh make FOLDER [PACKAGES]    makes it: the packages that are essential, and PACKAGES (a,b,…);
#                                             FOLDER.log has what debootstrap says
#   fresh_debian.sh enter FOLDER COMMAND…     runs a command in it, as root
# It needs root, debootstrap and the network: Debian's packages come from where the machine has its own. What a command
# mounts or starts goes away with it, so FOLDER may be deleted afterwards.
set -u
release=bookworm
# What is mounted there goes away with the namespace, and so does all that was started.
isolated=(unshare --mount --pid --fork --kill-child --mount-proc)
skip() { echo "skipped: $*"; exit 77; }

sources_of_the_machine() {
    mapfile -t sources < <(apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT) $(ORIGIN)' \
        'Created-By: Packages' | awk -v release=$release '$4 == "Debian" && $2 ~ "^"release { print "deb", $1, $2, $3 }')
    mirror=$(printf '%s\n' "${sources[@]}" | awk -v release=$release '$3 == release { print $2; exit }')
    [ -n "$mirror" ] || skip "this machine gets no packages of Debian 12 ($release)"
}

can() {
    [ "$(id -u)" = 0 ] || skip "root is needed for a fresh Debian"
    command -v debootstrap >/dev/null || skip "debootstrap is missing; ci/setup --packages installs it"
    sources_of_the_machine
    unshare --mount --pid --fork true 2>/dev/null || skip "no namespaces can be made here"
}

make() {
    local debian=$1 packages=${2:-} log=$1.log
    can
    "${isolated[@]}" debootstrap --variant=minbase ${packages:+--include="$packages"} $release "$debian" "$mirror" \
        >"$log" 2>&1 || {
        # Without a network there is nothing to test with; anything else is an error.
        grep -qE 'Failed getting release file|Couldn.t download' "$log" &&
            skip "Debian's packages cannot be fetched: $(tail -n 1 "$log")"
        cat "$log"
        echo "FAILED: debootstrap"
        exit 1
    }
    printf '%s\n' "${sources[@]}" >"$debian/etc/apt/sources.list"
    cp -L /etc/resolv.conf /etc/hosts "$debian/etc/"
    # Not a variable, which sudo would leave out.
    [ -z "${http_proxy:-}" ] || echo "Acquire::http::Proxy \"$http_proxy\";" >"$debian/etc/apt/apt.conf.d/proxy"
}

enter() {
    exec "${isolated[@]}" sh -c '
        mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount --rbind /sys "$0/sys" &&
        mount -t tmpfs tmpfs "$0/dev/shm" && exec env -i PATH=/usr/sbin:/usr/bin HOME=/root TERM=dumb LC_ALL=C.UTF-8 \
            chroot "$0" "$@"' "$@"
}

case ${1:-} in
can) [ $# = 1 ] && can && exit ;;
make) [ $# = 2 ] || [ $# = 3 ] && make "${@:2}" && exit ;;
enter) [ $# -ge 3 ] && enter "${@:2}" ;;
esac
sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
exit 2
