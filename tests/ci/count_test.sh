#!/bin/bash
# What ci/test makes of results: count_test.sh PROJECT_FOLDER
# With a build and tests that are only heard of: `good` passes, `shaky` fails beside others and passes alone, `missing`
# is skipped. The real ci/test counts.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/ci" "$work/bin" "$work/runtime"
cp "$1/ci/test" "$work/ci/test"
for script in ci/setup ci/rails ci/tidy bin/clang-format bin/git bin/cmake; do
    printf '#!/bin/sh\nexit 0\n' >"$work/$script"
done
cat >"$work/bin/ctest" <<'CTEST'
#!/bin/bash
again=
while [ $# != 0 ]; do
    case $1 in
    --test-dir) folder=$2; shift ;;
    --output-junit) file=$2; shift ;;
    -R) again=-again ;;
    esac
    shift
done
case $(basename "$folder")$again in
release)
    shaky='<testcase name="shaky" status="fail"><failure message="no"/></testcase>'
    mkdir -p "$folder/Testing/Temporary"
    echo 2:shaky >"$folder/Testing/Temporary/LastTestsFailed.log" ;;
*) shaky='<testcase name="shaky" status="run"/>' ;;
esac
others='<testcase name="good" status="run"/><testcase name="missing" status="notrun"><skipped message="why"/></testcase>'
echo "<testsuite>$shaky$others</testsuite>" >"$file"
[ "${shaky#*failure}" = "$shaky" ]
CTEST
chmod +x "$work"/ci/* "$work"/bin/*
failures=0
expect() { # WHAT-THE-LAST-LINE-IS CODE ci/test's options…
    local line=$1 code=$2 said
    shift 2
    said=$(PATH=$work/bin:$PATH "$work/ci/test" "$@" 2>&1)
    local got=$?
    [ $got = "$code" ] && [ "$(tail -1 <<<"$said")" = "$line" ] &&
        grep -q '^only alone, after it had failed beside others: shaky$' <<<"$said" &&
        grep -q '^1 passed only alone' <<<"$said" && return
    echo "FAILED: ci/test $*: code $got"
    tail -5 <<<"$said"
    failures=1
}
expect '6 passed, 0 failed, 3 skipped' 0
expect '5 passed, 1 failed, 3 skipped' 1 --full
exit $failures
