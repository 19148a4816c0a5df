#!/bin/bash
# The test bed itself: rails_test.sh PROJECT_FOLDER BED_PROBE
# Hosts are apart, rails have their rates, faults are faults, beds do not meet, nothing stays behind.
set -u
rails=$1/ci/rails
probe=$2
stream="$1/tests/ci/stream.py"
failures=0
# Folders of this test's own, so that other beds on this machine do not matter.
export RAILS_STATE=/run/flx-rails-test.$$
unset RAILS_BED

check() { # WHAT CONDITION…
    if "${@:2}"; then echo "ok: $1"; else echo "FAILED: $1"; failures=$((failures + 1)); fi
}
cleanup() {
    local bed
    for bed in "$RAILS_STATE"/*/; do [ -d "$bed" ] && "$rails" --bed "$(basename "$bed")" destroy; done
}
trap cleanup EXIT
trap 'exit 130' INT TERM

bed=$("$rails" create --share "$(dirname "$probe")" 2 400,100) || exit $?
on() { "$rails" --bed "$bed" exec "$@"; }
mbit() { # ADDRESS: Mbit/s from host 1 to host 2
    on 2 python3 "$stream" receive 5001 1.5 &
    on 1 python3 "$stream" send "$1" 5001 2.5 && wait $!
}
within() { awk -v x="${1:-0}" -v low="$2" -v high="$3" 'BEGIN { exit !(x >= low && x <= high) }'; }
reaches() { on 1 python3 "$stream" connect "$1" 9; }
counter() { "$rails" --bed "${3:-$bed}" stats | awk -F, -v h="$1" -v r="$2" '$1 == h && $2 == r { print $3 }'; }

# Hosts are apart.
check "names differ" test "$(on 1 hostname) $(on 2 hostname)" = "h1 h2"
check "boot ids differ" test "$(on 1 cat /proc/sys/kernel/random/boot_id)" != "$(on 2 cat /proc/sys/kernel/random/boot_id)"
for kind in net pid mnt ipc uts; do
    check "$kind namespaces differ" test "$(on 1 readlink /proc/self/ns/$kind)" != "$(on 2 readlink /proc/self/ns/$kind)"
done
on 1 touch /tmp/here /dev/shm/here
check "/tmp and /dev/shm are private and last" \
    test "$(on 1 ls /tmp /dev/shm | grep -c here) $(on 2 ls /tmp /dev/shm | grep -c here)" = "2 0"
check "sysfs shows the host's devices" test "$(on 1 ls /sys/class/net | tr '\n' ' ')" = "lo mgmt rail1 rail2 "
check "exec returns the command's code" test "$(on 2 sh -c 'exit 7'; echo $?)" = 7

# Rates. TCP's headers take 4 % of the wire's rate at this MTU.
speed=$(mbit 10.77.1.2)
check "rail 1 carries $speed of 400 Mbit/s" within "$speed" 340 400
speed=$(mbit 10.77.2.2)
check "rail 2 carries $speed of 100 Mbit/s" within "$speed" 88 100
"$rails" --bed "$bed" rate 2 40
speed=$(mbit 10.77.2.2)
check "rail 2, slowed, carries $speed of 40 Mbit/s" within "$speed" 35 40

# Faults.
"$rails" --bed "$bed" cut 2 1
check "a cut rail is unreachable" test "$(reaches 10.77.2.2; echo $?)" = 1
check "the other rail is not cut" reaches 10.77.1.2
"$rails" --bed "$bed" restore 2 1
check "a restored rail is reached" reaches 10.77.2.2
"$rails" --bed "$bed" blackhole 2
check "a black hole does not answer" test "$(reaches 10.77.2.2; echo $?)" = 2
"$rails" --bed "$bed" unblackhole 2
check "the rail is back" reaches 10.77.2.2

# One way only. Datagrams show the way: a connection needs both.
arrives() { # FROM TO ADDRESS: 0 if a datagram gets there
    on "$2" timeout 3 python3 "$stream" hear 5002 & # binds, then waits
    sleep 0.7
    on "$1" python3 "$stream" say "$3" 5002
    wait $!
}
"$rails" --bed "$bed" blackhole 2 1 out
check "what a host sends is lost" test "$(arrives 1 2 10.77.2.2; echo $?)" = 124
check "what is sent to it is not" arrives 2 1 10.77.2.1
"$rails" --bed "$bed" blackhole 2 1 in
check "what is sent to a host is lost" test "$(arrives 2 1 10.77.2.1; echo $?)" = 124
check "what it sends is not" arrives 1 2 10.77.2.2
"$rails" --bed "$bed" unblackhole 2
check "both ways are back" arrives 2 1 10.77.2.1

# Random faults: the same ones for one seed, and none is left.
"$rails" --bed "$bed" storm 4 11 >"$RAILS_STATE/one"
"$rails" --bed "$bed" storm 4 11 >"$RAILS_STATE/two"
check "a storm has events" grep -q 'h[12] rail [12]: ' "$RAILS_STATE/one"
check "a seed decides them" diff <(cut -c14- "$RAILS_STATE/one") <(cut -c14- "$RAILS_STATE/two")
rm -f "$RAILS_STATE/one" "$RAILS_STATE/two"
check "after it rail 1 is whole" reaches 10.77.1.2
check "and rail 2" reaches 10.77.2.2
check "and their rates" test "$(on 1 tc qdisc show | grep -c 'rate \(400\|40\|100\)Mbit')" = 2

# Open MPI, over the rails.
before=$(counter 1 1)
check "4 ranks on 2 hosts" \
    test "$("$rails" --bed "$bed" mpirun -n 4 -- "$probe")" = "ranks=4 hosts=2 wrong=0"
check "their bytes went over a rail" test $(($(counter 1 1) + $(counter 1 2) - before)) -gt 1000000
before=$(counter 1 1)
check "4 ranks on 2 hosts by the management device" \
    test "$("$rails" --bed "$bed" mpirun --mgmt -n 4 -- "$probe")" = "ranks=4 hosts=2 wrong=0"
check "no byte of theirs went over a rail" test $(($(counter 1 1) - before)) -lt 2000
check "3 ranks, 2 a host, code of a failing program" \
    test "$("$rails" --bed "$bed" mpirun -n 3 --per-host 2 -- sh -c 'exit 3' >/dev/null 2>&1; echo $?)" = 3
crowd=$(($(nproc) + 1))
check "more ranks than cores yield while they wait" \
    test "$("$rails" --bed "$bed" mpirun -n $crowd -- printenv OMPI_MCA_mpi_yield_when_idle | sort -u)" = 1
check "as many as cores do not" \
    test -z "$("$rails" --bed "$bed" mpirun -n $(($(nproc) > 1 ? 2 : 1)) -- \
        sh -c 'printenv OMPI_MCA_mpi_yield_when_idle || :')"
check "variables reach the other host" test "$(UCX_PROBE=7 "$rails" --bed "$bed" mpirun -n 2 -- \
    sh -c 'echo $(hostname)=$UCX_PROBE' | sort | tr '\n' ' ')" = "h1=7 h2=7 "

# Two beds.
other=$("$rails" create --share "$(dirname "$probe")" --mtu 9000 4 200)
check "beds have different names" test -n "$other" -a "$other" != "$bed"
quiet=$(counter 1 1)
check "4 ranks on 4 hosts of the other bed" \
    test "$("$rails" --bed "$other" mpirun -n 4 -- "$probe")" = "ranks=4 hosts=4 wrong=0"
check "the first bed stayed quiet" test $(($(counter 1 1) - quiet)) -lt 2000
check "MTU" test "$("$rails" --bed "$other" exec 3 cat /sys/class/net/rail1/mtu)" = 9000
"$rails" --bed "$other" destroy
check "the first bed is still there" reaches 10.77.1.2

# Hosts that differ, and two rails on one wire.
odd=$("$rails" create --only 2:1,3 --name 3:1=eth5 --wire 3,4 3 400,100,80,80)
there() { # HOST ADDRESS FROM
    "$rails" --bed "$odd" exec "$2" python3 "$stream" connect "$1" 9
}
check "devices as they were named" \
    test "$("$rails" --bed "$odd" exec 3 ls /sys/class/net | tr '\n' ' ')" = "eth5 lo mgmt rail2 rail3 rail4 wire3 "
check "a host lacks a rail" test "$("$rails" --bed "$odd" exec 2 ls /sys/class/net | tr '\n' ' ')" = "lo mgmt rail1 rail3 rail4 wire3 "
check "rail 1 reaches what is named otherwise" there 10.77.1.3 2
check "rail 2 joins hosts 1 and 3" there 10.77.2.3 1
check "rails 3 and 4 reach" there 10.77.3.3 1
check "the rail that a host lacks cannot be cut there" test "$("$rails" --bed "$odd" cut 2 2 2>/dev/null; echo $?)" = 1
both() { # Mbit/s of two streams at once, one a rail
    local i pids=()
    for i in 3 4; do
        "$rails" --bed "$odd" exec 2 python3 "$stream" receive 500$i 1.5 &
        pids+=($!)
        "$rails" --bed "$odd" exec 1 python3 "$stream" send "10.77.$i.2" 500$i 2.5 &
    done
    wait "${pids[@]}"
}
speed=$(both | awk '{ sum += $1 } END { print sum }')
check "rails 3 and 4 together carry $speed of 80 Mbit/s" within "$speed" 60 84
"$rails" --bed "$odd" blackhole 3 2
check "rail 3 of host 2 is silent" test "$(there 10.77.3.2 1; echo $?)" = 2
check "rail 4 on the same wire is not" there 10.77.4.2 1
"$rails" --bed "$odd" unblackhole 3
check "rail 3 is back" there 10.77.3.2 1
"$rails" --bed "$odd" destroy

# Wrong words are said to be wrong.
for words in "rate 3 100" "rate 1 fast" "cut 0" "exec 3 true" "create 0 100" "create 2" "create --only 3:1 2 100" \
    "create --wire 1,2 2 100,200" "create --name 1:1 2 100" "blackhole 1 1 up" "storm 5" "nonsense"; do
    check "'$words' is refused" test "$("$rails" --bed "$bed" $words >/dev/null 2>&1; echo $?)" = 1
done

# Nothing stays behind.
holders=$(cat "$RAILS_STATE/$bed"/*/keeper | cut -d' ' -f1)
"$rails" --bed "$bed" destroy
gone() { local pid; for pid in "$@"; do [ ! -d "/proc/$pid/ns" ] || [ -z "$(ls /proc/$pid/fd 2>/dev/null)" ] || return 1; done; }
check "destroy ends the hosts" gone $holders
check "destroy leaves no folder" test ! -e "$RAILS_STATE"
bash -c '"$0" create 2 100 >/dev/null; kill -9 $$' "$rails" 2>/dev/null
for _ in {1..60}; do [ -e "$RAILS_STATE" ] || break; sleep 0.1; done
check "a bed goes with its owner" test ! -e "$RAILS_STATE"
setsid "$rails" create 40 100 >/dev/null 2>&1 &
creator=$!
sleep 0.3
kill -TERM $creator
wait $creator 2>/dev/null
check "an interrupted creation leaves no folder" test ! -e "$RAILS_STATE"
check "nor a process" test -z "$(pgrep -f "^/bin/bash $rails --bed bed$creator ")"

[ $failures = 0 ] || { echo "$failures failed"; exit 1; }
