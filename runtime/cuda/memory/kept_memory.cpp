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
    std::vector<PinnedWords> words;
    struct Groups {
        int all = 0;
        int living = 0;
    };
    std::map<int, Groups> groups;  ///< by device
};
AllKept &kept() {
    static auto *const only = new AllKept;
    return *only;
}

/// Both without the mutex while CUDA is asked for more, which may take long.
bool take_free(int device, uint64_t bytes, char *&memory) {
    AllKept &all = kept();
    const std::lock_guard lock(all.mutex);
    const auto found = std::find_if(all.free.begin(), all.free.end(), [&](const KeptPiece &piece) {
        return piece.device == device && piece.bytes == bytes;
    });
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
    return {};
}

void return_kept(int device, uint64_t bytes, char *memory) {
    if (memory == nullptr)
        return;
    AllKept &all = kept();
    const std::lock_guard lock(all.mutex);
    all.free.push_back({device, bytes, memory});
}

void GroupCount::begin(int device) {
    AllKept &all = kept();
    const std::lock_guard lock(all.mutex);
    device_ = device;
    lives_ = true;
    ++all.groups[device].all;
    ++all.groups[device].living;
}

void GroupCount::end_life() {
    AllKept &all = kept();
    const std::lock_guard lock(all.mutex);
    if (std::exchange(lives_, false))
        --all.groups[device_].living;
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
