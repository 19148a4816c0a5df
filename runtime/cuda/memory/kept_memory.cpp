#include "runtime/cuda/memory/kept_memory.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/cuda/memory/driver.h"

namespace flx::cuda {
namespace {

struct KeptPiece {
    int device = 0;
    uint64_t bytes = 0;
    char *memory = nullptr;
};

// Never destroyed: threads of FLX's own may outlive static objects.
struct AllKept {
    std::mutex mutex;
    std::vector<KeptPiece> free;
    std::map<char *, uint64_t> sizes;  ///< of all pieces
    std::vector<PinnedWords> words;
    struct Groups {
        int all = 0;
        int living = 0;
        std::map<uint64_t, uint64_t> held;  ///< bytes by communicator, of those that live
    };
    std::map<int, Groups> groups;  ///< by device
};
AllKept &kept() {
    static auto *const only = new AllKept;
    return *only;
}

/// Both without the mutex while CUDA is asked for more, which may take long. The least that fits, but none that is
/// many times as large: a communicator that needs that may come.
bool take_free(int device, uint64_t bytes, char *&memory) {
    constexpr uint64_t kMostTimes = 4;
    AllKept &all = kept();
    const std::lock_guard lock(all.mutex);
    auto found = all.free.end();
    for (auto piece = all.free.begin(); piece != all.free.end(); ++piece) {
        const bool fits = piece->device == device && piece->bytes >= bytes && piece->bytes <= kMostTimes * bytes;
        if (fits && (found == all.free.end() || piece->bytes < found->bytes))
            found = piece;
    }
    if (found == all.free.end())
        return false;
    memory = found->memory;
    all.free.erase(found);
    return true;
}
bool take_free(PinnedWords &words) {
    AllKept &all = kept();
    const std::lock_guard lock(all.mutex);
    if (all.words.empty())
        return false;
    words = all.words.back();
    all.words.pop_back();
    return true;
}

Status pin_words(std::vector<PinnedWords> &words) {
    constexpr uint64_t kPinned = 4096;
    void *memory = nullptr;
    FLX_TRY_CUDA(cudaHostAlloc(&memory, kPinned, cudaHostAllocMapped | cudaHostAllocPortable));
    void *mapped = nullptr;
    FLX_TRY_CUDA(cudaHostGetDevicePointer(&mapped, memory, 0));
    for (uint64_t at = 0; at < kPinned; at += PinnedWords::kBytes)
        words.push_back({reinterpret_cast<volatile uint32_t *>(static_cast<char *>(memory) + at),
                         reinterpret_cast<uint32_t *>(static_cast<char *>(mapped) + at)});
    return {};
}

}  // namespace

Status take_kept(uint64_t bytes, char *&memory) {
    int device = 0;
    FLX_TRY_CUDA(cudaGetDevice(&device));
    if (take_free(device, bytes, memory))
        return {};
    void *made = nullptr;
    FLX_TRY_CUDA(cudaMalloc(&made, bytes));
    memory = static_cast<char *>(made);
    AllKept &all = kept();
    const std::lock_guard lock(all.mutex);
    all.sizes[memory] = bytes;
    return {};
}

void return_kept(int device, char *memory) {
    if (memory == nullptr)
        return;
    AllKept &all = kept();
    const std::lock_guard lock(all.mutex);
    all.free.push_back({device, all.sizes[memory], memory});
}

void GroupCount::begin(int device) {
    AllKept &all = kept();
    const std::lock_guard lock(all.mutex);
    device_ = device;
    lives_ = true;
    ++all.groups[device].all;
    ++all.groups[device].living;
}

bool GroupCount::reserve(uint64_t communicator, uint64_t bytes, uint64_t most) {
    AllKept &all = kept();
    const std::lock_guard lock(all.mutex);
    std::map<uint64_t, uint64_t> &held = all.groups[device_].held;
    uint64_t others = 0;
    for (const auto &[other, its] : held)
        others += other == communicator ? 0 : its;
    // Ranks of one communicator that share a GPU take from one budget. The first communicator has what it asks for.
    const auto own = held.find(communicator);
    if (others != 0 && others + (own == held.end() ? 0 : own->second) + bytes > most)
        return false;
    communicator_ = communicator;
    bytes_ = bytes;
    held[communicator] += bytes;
    return true;
}

void GroupCount::hold(uint64_t bytes) {
    AllKept &all = kept();
    const std::lock_guard lock(all.mutex);
    all.groups[device_].held[communicator_] += bytes - bytes_;
    bytes_ = bytes;
}

void GroupCount::end_life() {
    AllKept &all = kept();
    const std::lock_guard lock(all.mutex);
    if (!std::exchange(lives_, false))
        return;
    AllKept::Groups &groups = all.groups[device_];
    --groups.living;
    const auto own = groups.held.find(communicator_);
    if (own != groups.held.end() && (own->second -= bytes_) == 0)
        groups.held.erase(own);
}

GroupCount::~GroupCount() {
    end_life();
    AllKept &all = kept();
    const std::lock_guard lock(all.mutex);
    if (device_ >= 0)
        --all.groups[device_].all;
}

int GroupCount::living(int device) {
    AllKept &all = kept();
    const std::lock_guard lock(all.mutex);
    return all.groups[device].living;
}

int GroupCount::all(int device) {
    AllKept &all = kept();
    const std::lock_guard lock(all.mutex);
    return all.groups[device].all;
}

Status take_words(PinnedWords &words) {
    while (!take_free(words)) {
        std::vector<PinnedWords> made;
        FLX_TRY(pin_words(made));
        AllKept &all = kept();
        const std::lock_guard lock(all.mutex);
        all.words.insert(all.words.end(), made.begin(), made.end());
    }
    std::memset(const_cast<uint32_t *>(words.here), 0, PinnedWords::kBytes);
    return {};
}

void return_words(PinnedWords &words) {
    if (words.here == nullptr)
        return;
    AllKept &all = kept();
    const std::lock_guard lock(all.mutex);
    all.words.push_back(std::exchange(words, {}));
}

}  // namespace flx::cuda
