#!/bin/bash
# Makes the wheel of a build, installs it by pip into an empty folder, and uses it from there alone:
# wheel_test.sh BUILD CMAKE PYTHON
set -eu
build=$1 cmake=$2 python=$3
skip() { echo "skipped: $*"; exit 77; }
"$python" -c 'import wheel' 2>/dev/null || skip "Python's wheel is not installed (python3-wheel)"
"$python" -m pip --version >/dev/null 2>&1 || skip "pip is not installed (python3-pip)"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
rm -f "$build"/wheel/*.whl
"$cmake" --build "$build" --target wheel >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
wheels=("$build"/wheel/flx-*.whl)
[ ${#wheels[@]} = 1 ] && [ -e "${wheels[0]}" ] || { echo "FAILED: not one wheel: ${wheels[*]}"; exit 1; }
"$python" -m pip install --quiet --no-index --no-deps --no-warn-script-location --root-user-action=ignore \
    --target "$folder/site" "${wheels[0]}"
unset LD_LIBRARY_PATH
export PYTHONPATH=$folder/site
cat >"$folder/ranks.py" <<'P'
import os
import flx

with flx.Communicator.from_store("127.0.0.1", int(os.environ["PORT"]), int(os.environ["RANK"]), 2) as comm:
    numbers = memoryview(bytearray(4)).cast("i")
    numbers[0] = comm.rank + 1
    comm.allreduce(numbers)
    assert numbers[0] == 3, numbers[0]
print(flx.__file__, open("/proc/self/maps").read().count("/site/flx/libflx.so") > 0)
P
PORT=$("$python" -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
export PORT
RANK=1 timeout 60 "$python" "$folder/ranks.py" >"$folder/1" &
RANK=0 timeout 60 "$python" "$folder/ranks.py" >"$folder/0"
wait $!
for rank in 0 1; do
    grep -qx "$folder/site/flx/__init__.py True" "$folder/$rank" ||
        { echo "FAILED: rank $rank: $(cat "$folder/$rank")"; exit 1; }
done
echo "ok: ${wheels[0]##*/}, $(($(stat -c %s "${wheels[0]}") / 1024)) KiB"
