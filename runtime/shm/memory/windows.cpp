#include "runtime/shm/memory/windows.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include "runtime/base/counters.h"
#include "runtime/base/pages.h"

namespace flx::shm {

/// The window onto one process's heap; communicators share it.
struct Windows::Window {
    std::byte *reserved = nullptr;
    size_t reserved_bytes = 0;
    std::byte *base = nullptr;
    size_t bytes = 0;
    std::mutex mutex;
    std::unique_ptr<Pins> pins;

    Window() = default;
    Window(const Window &) = delete;
    Window &operator=(const Window &) = delete;
    ~Window() {
        pins.reset();  // before its pages
        if (reserved != nullptr)
            munmap(reserved, reserved_bytes);
    }
};

namespace {

/// Addresses cost nothing, and a window that is long enough need not be replaced.
constexpr size_t kShortest = size_t{1} << 30;

struct File {
    int fd = -1;
    ~File() {
        if (fd >= 0)
            close(fd);
    }
};

/// Whether the file is what its rank said: a process of that number may be another one where ranks are in containers.
Status check(int fd, int rank, int pid, const SharedHeap::Address &address) {
    std::array<uint64_t, 2> key{};
    struct stat found {};
    if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode) || found.st_dev != address.device ||
        found.st_ino != address.inode || found.st_uid != geteuid() ||
        pread(fd, key.data(), sizeof key, 0) != sizeof key || key != address.key)
        return fail(Fault::peer_memory_closed, "process {} is not rank {} here", pid, rank);
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
        return fail(Fault::peer_memory_closed, "memory of rank {} could be taken away while it is used", rank);
    return {};
}

}  // namespace

Status Windows::map(const Peer &peer, int rank, size_t bytes, std::shared_ptr<Window> &window) {
    const std::string path = fmt::format("/proc/{}/fd/{}", peer.pid, peer.address.fd);
    const File file{open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
    if (file.fd < 0)
        return fail(Fault::peer_memory_closed, "opening memory of rank {} ({}) failed: {}", rank, path,
                    std::strerror(errno));
    FLX_TRY(check(file.fd, rank, peer.pid, peer.address));
    auto made = std::make_shared<Window>();
    void *reserved = mmap(nullptr, bytes + kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved != MAP_FAILED) {
        made->reserved = static_cast<std::byte *>(reserved);
        made->reserved_bytes = bytes + kHuge;
        std::byte *base = made->reserved + -reinterpret_cast<uintptr_t>(reserved) % kHuge;
        if (mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file.fd, 0) !=
            MAP_FAILED) {
            madvise(base, bytes, MADV_DONTDUMP);  // it is in its owner's core file
            made->base = base;
            made->bytes = bytes;
        }
    }
    if (made->base == nullptr)
        return fail(Fault::peer_memory_closed, "mapping memory of rank {} failed: {}", rank, std::strerror(errno));
    window = std::move(made);
    return {};
}

Status Windows::reach(int rank, uint64_t end) {
    static std::mutex mutex;
    static std::map<std::array<uint64_t, 2>, std::weak_ptr<Window>> windows;

    Peer &peer = peers_[rank];
    if (peer.window && peer.window->bytes >= end)
        return {};
    const auto guard = lock_counted(mutex);
    std::erase_if(windows, [](const auto &entry) { return entry.second.expired(); });
    std::shared_ptr<Window> window = windows[peer.address.key].lock();
    if (!window || window->bytes < end) {
        FLX_TRY(map(peer, rank, std::max(std::bit_ceil(end), kShortest), window));
        windows[peer.address.key] = window;
        Telemetry::count(telemetry().registrations);
    }
    peer.window = std::move(window);
    return {};
}

std::byte *Windows::at(int rank) const {
    return peers_[rank].window ? peers_[rank].window->base : nullptr;
}

Pins &Windows::pins(int rank, CopyEngine &engine) {
    Window &window = *peers_[rank].window;
    const auto guard = lock_counted(window.mutex);
    if (!window.pins)
        window.pins = engine.pin(window.base);
    return *window.pins;
}

void Windows::given_back(int rank, uint32_t freed) {
    if (!peers_[rank].window)
        return;
    Window &window = *peers_[rank].window;
    const auto guard = lock_counted(window.mutex);
    if (window.pins)
        window.pins->given_back(freed);
}

Status Windows::make(Bootstrap &bootstrap, const std::vector<int> &pids, std::unique_ptr<Windows> &result,
                     std::string &why) {
    auto windows = std::unique_ptr<Windows>(new Windows);
    SharedHeap::Address mine;
    Status status = SharedHeap::of_process().address(mine);
    std::vector<SharedHeap::Address> all(bootstrap.size());
    FLX_TRY(bootstrap.allgather(&mine, sizeof mine, all.data()));
    windows->peers_.resize(bootstrap.size());
    for (int rank = 0; rank < bootstrap.size(); ++rank)
        windows->peers_[rank] = {pids[rank], all[rank], nullptr};
    for (int rank = 0; rank < bootstrap.size() && status.ok(); ++rank) {
        // One that has no file says so itself.
        std::shared_ptr<Window> tried;
        if (rank != bootstrap.rank() && all[rank].fd >= 0)
            status = map(windows->peers_[rank], rank, sizeof(uint64_t), tried);
    }
    std::vector<std::string> failures;
    FLX_TRY(bootstrap.allgather_text(status.words(), failures));
    const auto failed = std::ranges::find_if(failures, [](const std::string &text) { return !text.empty(); });
    if (failed == failures.end())
        result = std::move(windows);
    else
        why = *failed;
    return {};
}

}  // namespace flx::shm
