#!/bin/bash
# What ci/test makes of results: count_test.sh PROJECT_FOLDER
# With a build and tests that are only heard of: `good` passes, `shaky1` and so on fail beside others and pass alone,
# `missing` is skipped. The real ci/test counts. MPICH is heard of where NO_MPICH is empty.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/ci" "$work/bin" "$work/runtime"
cp "$1/ci/test" "$work/ci/test"
for script in ci/setup ci/rails ci/tidy ci/layers ci/docs bin/clang-format bin/git bin/cmake; do
    printf '#!/bin/sh\nexit 0\n' >"$work/$script"
done
echo '[ "$1" != --has-mpich ] || [ -z "${NO_MPICH:-}" ] || { echo "not here"; exit 1; }' >"$work/ci/setup"
cat >"$work/bin/ctest" <<'CTEST'
#!/bin/bash
again= cases= list=
while [ $# != 0 ]; do
    case $1 in
    --test-dir) folder=$2; shift ;;
    --output-junit) file=$2; shift ;;
    -R) again=1 ;;
    esac
    shift
done
preset=$(basename "$folder")
for ((i = 1; i <= $([ "$preset" = "$SHAKY_PRESET" ] && echo "$SHAKY" || echo 0); i++)); do
    if [ -n "$again" ]; then
        cases+="<testcase name='shaky$i' status='run'/>"
    else
        cases+="<testcase name='shaky$i' status='fail'><failure message='no'/><system-out>trouble $i</system-out></testcase>"
        list+="$i:shaky$i"$'\n'
    fi
done
mkdir -p "$folder/Testing/Temporary"
[ -z "$list" ] || printf %s "$list" >"$folder/Testing/Temporary/LastTestsFailed.log"
others='<testcase name="good" status="run"/><testcase name="missing" status="notrun"><skipped message="why"/></testcase>'
echo "<testsuite>$cases$others</testsuite>" >"$file"
[ -z "$list" ]
CTEST
chmod +x "$work"/ci/* "$work"/bin/*
failures=0
expect() { # HOW-MANY-SHAKY PRESET WHAT-THE-LAST-LINE-IS CODE ci/test's options…
    local line=$3 code=$4 said i
    export SHAKY=$1 SHAKY_PRESET=$2
    shift 4
    said=$(PATH=$work/bin:$PATH "$work/ci/test" "$@" 2>&1)
    local got=$? alone=$work/build/test-results/alone wrong=
    [ $got = "$code" ] && [ "$(tail -1 <<<"$said")" = "$line" ] || wrong="code $got"
    for ((i = 1; i <= SHAKY; i++)); do
        if [[ $SHAKY_PRESET = release || $SHAKY_PRESET = mpich ]]; then
            grep -q "^passed only alone: shaky$i " <<<"$said" && grep -qx "trouble $i" "$alone/shaky$i.log" || wrong+=" shaky$i"
        else
            [ ! -e "$alone/shaky$i.log" ] && grep -q "^failed: shaky$i$" <<<"$said" || wrong+=" shaky$i"
        fi
    done
    [ -n "$wrong" ] || return
    echo "FAILED: $SHAKY of $SHAKY_PRESET, ci/test $*: $wrong"
    tail -8 <<<"$said"
    failures=1
}
expect 0 release '1 passed, 0 failed, 1 skipped' 0
expect 2 release '3 passed, 0 failed, 1 skipped' 0
expect 3 release '4 passed, 1 failed, 1 skipped' 1
expect 0 release '4 passed, 0 failed, 4 skipped' 0 --merge
expect 2 release '6 passed, 0 failed, 4 skipped' 0 --merge
expect 1 release '5 passed, 1 failed, 4 skipped' 1 --full
expect 1 asan '4 passed, 1 failed, 4 skipped' 1 --merge
expect 1 mpich '5 passed, 0 failed, 4 skipped' 0 --merge
export NO_MPICH=1
expect 0 release '3 passed, 0 failed, 4 skipped' 0 --merge
exit $failures
