#!/bin/bash
# What ci/bundle packs for emulated hosts: bundle_test.sh PROJECT_FOLDER BUILD_FOLDER
# Every library that something in the tarball needs is in it, or is the machine's own. As root, too: where there are
# bash and coreutils only, its programs start, and ci/rails makes hosts between which flx_perf runs.
set -u
project=$1
build=$2
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

# What it refuses.
"$project/ci/bundle" "$build" >"$work/log" 2>&1
[ $? = 2 ] && grep -q -- '--bed' "$work/log" || fail "neither --gpu nor --bed, and no usage: $(cat "$work/log")"
mkdir -p "$work/draft"/{bin,lib}
touch "$work/draft"/{bin/{flx_perf,flx_lab,flx_info,flx-run},lib/libflx.so}
echo 'FLX_CUDA_DRAFT:BOOL=ON' >"$work/draft/CMakeCache.txt"
"$project/ci/bundle" --gpu "$work/draft" "$work/gpu.tar" >"$work/log" 2>&1 && fail "draft kernels were packed for GPUs"
grep -q drafts "$work/log" || fail "draft kernels: $(cat "$work/log")"

# The machine that it is for. What it has it keeps, so it comes first.
root=$work/root
mkdir -p "$root"/{etc,dev,proc,sys,run,usr/bin,usr/sbin,usr/lib,usr/lib64}
mkdir -m 1777 "$root/tmp"
for dir in bin sbin lib lib64; do
    if [ -L /$dir ]; then cp -P /$dir "$root/"; else mkdir "$root/$dir"; fi
done
echo 'root:x:0:0:root:/:/bin/sh' >"$root/etc/passwd"
echo '127.0.0.1 localhost' >"$root/etc/hosts"
echo 'include /etc/ld.so.conf.d/*.conf' >"$root/etc/ld.so.conf"
loader=$(ldd "$(command -v env)" | awk '/ld-linux/ { print $1 }')
c_library=$(dirname "$(ldd "$(command -v env)" | awk '/libc\.so/ { print $3 }')")
own=("$loader")
for name in c m mvec dl rt pthread resolv util gcc_s; do
    for path in "$c_library/lib$name.so."*; do [ -e "$path" ] && own+=("$path"); done
done
mapfile -t paths < <(PATH=$PATH:/usr/sbin:/sbin type -P bash sh ldconfig basename cat chmod cut dirname env false head \
    id ln ls mkdir mkfifo mktemp mv nproc readlink rm rmdir sleep sort stat tail timeout touch tr true uname wc)
mapfile -t -O ${#own[@]} own < <(printf '%s\n' "${paths[@]}" | xargs -n 1 "$loader" --list 2>/dev/null |
    awk '/=> \// { print $3 }' | sort -u)
cp -L --parents "${own[@]}" "${paths[@]}" "$root" 2>/dev/null

"$project/ci/bundle" --bed "$build" "$work/bed.tar" || { echo "FAILED: ci/bundle --bed"; exit 1; }
mkdir "$work/alone"
tar -C "$work/alone" -xf "$work/bed.tar"
tar --skip-old-files -C "$root" -xf "$work/bed.tar"
rm "$work/bed.tar"

cd "$work/alone" || exit 1
for path in opt/flx/{bin/{flx_perf,flx_lab,flx_info,flx-run},build/release/bin/flx_perf} \
    opt/flx/ci/{rails,rails-figures,host-figures,calibrate-figures}; do
    [ -x $path ] || fail "$path is not packed"
done
find usr -path '*bin/*' -printf '%f\n' >"$work/programs"
for name in ip bridge tc sysctl unshare nsenter setsid mount umount hostname ps pgrep sed grep find awk mpirun orted; do
    grep -qx $name "$work/programs" || fail "$name is not packed"
done
find . -type f \( -name '*.so*' -o -path '*bin/*' \) -exec readelf -dW {} + 2>/dev/null |
    awk '/^File: / { file = $2 } /\(NEEDED\)/ { gsub(/[][]/, "", $NF); print $NF, file }' >"$work/needed"
[ "$(wc -l <"$work/needed")" -gt 100 ] || fail "what is needed was not understood"
theirs='^(libc|libm|libmvec|libdl|librt|libpthread|libresolv|libutil|libgcc_s|ld-linux.*|libcuda|libnvidia-ml)[.]so'
find -L . -name '*.so*' -type f -printf '%f\n' | awk -v theirs="$theirs" \
    'NR == FNR { packed[$1] = 1; next } !($1 in packed) && $1 !~ theirs' - "$work/needed" >"$work/missing"
while read -r name file; do
    # Of a plug-in that does not work here either, nothing is asked.
    [[ $file != *bin/* ]] && ! ldconfig -p 2>/dev/null | grep -qF "$name " && continue
    fail "$file needs $name, which is not packed"
done <"$work/missing"
[ $failures != 0 ] || echo "ok: $(cut -d' ' -f2 "$work/needed" | sort -u | wc -l) programs and libraries have what they need"
cd / && rm -rf "$work/alone"

# There. Mounts and processes go with the namespaces.
there() { # SCRIPT: as root on that machine
    unshare --mount --pid --fork --kill-child bash -c 'mount --bind "$1" "$1" && mount -t proc proc "$1/proc" &&
        mount --rbind /sys "$1/sys" && mount --rbind /dev "$1/dev" && mount -t tmpfs run "$1/run" || exit 77
        exec chroot "$1" /usr/bin/env -i HOME=/ PATH=/usr/sbin:/usr/bin:/sbin:/bin bash -c "$2"' there "$root" "$1" 2>&1
}
why=$(if [ "$(id -u)" = 0 ]; then there true; else echo "that needs root"; fi)
if [ -n "$why" ]; then
    echo "the tarball was not tried where there is nothing else: $why"
    [ $failures = 0 ]
    exit
fi
said=$(there "ldconfig 2>/dev/null
for file in /opt/flx/bin/flx_* /usr/sbin/* /usr/bin/*; do
    $loader --list \$file 2>/dev/null | grep 'not found' && echo of \$file
done
for command in 'ip -V' 'tc -V' 'bridge -V' 'sysctl -n kernel.ostype' 'unshare --version' 'nsenter --version' \
    'setsid true' 'mount --version' 'umount --version' hostname 'ps -e' 'pgrep -V' 'sed --version' 'grep --version' \
    'find --version' 'awk 1 /etc/hosts' 'mpirun --allow-run-as-root -n 1 hostname' 'ompi_info --version' \
    '/opt/flx/bin/flx_perf --help' '/opt/flx/bin/flx-run --library'; do
    said=\$(\$command 2>&1) || echo \"\$command: \$said\"
done")
[ -z "$said" ] && echo "ok: programs start where there is nothing else" || fail "where there is nothing else: $said"
said=$(there "cd /opt/flx &&
    ci/rails once 2 800,400 -n 2 -- build/release/bin/flx_perf allreduce --sizes 1M --check --max-seconds 0.2")
case $? in
0) echo "ok: flx_perf between two hosts, where there is nothing else" ;;
77) echo "no hosts there: $said" ;;
*) fail "flx_perf between two hosts: $said" ;;
esac
[ $failures = 0 ]
