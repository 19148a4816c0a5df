#!/bin/bash
# FLX's Debian packages: packages_test.sh PROJECT_FOLDER BUILD_FOLDER
# ci/packages makes them of the build. In a fresh Debian 12, which debootstrap makes in a folder, they are installed,
# used and removed (packages_trial.sh). That needs root, and some minutes: Debian's packages come from where the machine
# has its own.
set -u
project=$1
build=$2
[ "$(id -u)" = 0 ] || { echo "skipped: root is needed for a fresh Debian"; exit 77; }
for program in debootstrap lintian; do
    command -v $program >/dev/null || { echo "skipped: $program is missing; ci/setup --packages installs it"; exit 77; }
done
[ -d "$build/pages/man3" ] || { echo "skipped: the build has no man pages: doxygen is missing"; exit 77; }
release=bookworm
mapfile -t sources < <(apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT) $(ORIGIN)' \
    'Created-By: Packages' | awk -v release=$release '$4 == "Debian" && $2 ~ "^"release { print "deb", $1, $2, $3 }')
mirror=$(printf '%s\n' "${sources[@]}" | awk -v release=$release '$3 == release { print $2; exit }')
[ -n "$mirror" ] || { echo "skipped: this machine gets no packages of Debian 12 ($release)"; exit 77; }
unshare --mount --pid --fork true 2>/dev/null || { echo "skipped: no namespaces can be made here"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM HUP
"$project/ci/packages" --draft "$build" "$work/packages" || { echo "FAILED: ci/packages"; exit 1; }
debian=$work/debian
# What is mounted there goes away with the namespace, and so does all that was started.
isolated=(unshare --mount --pid --fork --kill-child --mount-proc)
"${isolated[@]}" debootstrap --variant=minbase $release "$debian" "$mirror" >"$work/log" 2>&1 || {
    # Without a network there is nothing to test with; anything else is an error.
    grep -qE 'Failed getting release file|Couldn.t download' "$work/log" &&
        { echo "skipped: Debian's packages cannot be fetched: $(tail -n 1 "$work/log")"; exit 77; }
    cat "$work/log"
    echo "FAILED: debootstrap"
    exit 1
}
printf '%s\n' "${sources[@]}" >"$debian/etc/apt/sources.list"
cp -L /etc/resolv.conf /etc/hosts "$debian/etc/"
mkdir "$debian/flx"
cp -r "$work/packages" "$project/tests/ci/consumer" "$project/tests/ci/packages_trial.sh" "$debian/flx/"
"${isolated[@]}" sh -c '
    mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount --rbind /sys "$0/sys" &&
    mount -t tmpfs tmpfs "$0/dev/shm" && exec env -i PATH=/usr/sbin:/usr/bin HOME=/root TERM=dumb LC_ALL=C.UTF-8 \
        ${http_proxy:+http_proxy=$http_proxy} chroot "$0" /bin/bash /flx/packages_trial.sh' "$debian"
