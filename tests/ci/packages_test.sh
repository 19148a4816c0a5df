#!/bin/bash
# FLX's Debian packages: packages_test.sh PROJECT_FOLDER BUILD_FOLDER
# ci/packages makes them of the build. In a fresh Debian 12 (fresh_debian.sh) they are installed, used and removed
# (packages_trial.sh). That takes some minutes.
set -u
project=$1
build=$2
fresh=$project/tests/ci/fresh_debian.sh
"$fresh" can || exit
command -v lintian >/dev/null || { echo "skipped: lintian is missing; ci/setup --packages installs it"; exit 77; }
[ -d "$build/pages/man3" ] || { echo "skipped: the build has no man pages: doxygen is missing"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM HUP
"$project/ci/packages" --draft "$build" "$work/packages" || { echo "FAILED: ci/packages"; exit 1; }
debian=$work/debian
"$fresh" make "$debian" || exit
mkdir "$debian/flx"
cp -r "$work/packages" "$project/tests/ci/consumer" "$project/tests/ci/packages_trial.sh" "$debian/flx/"
"$fresh" enter "$debian" /bin/bash /flx/packages_trial.sh
