#include "runtime/cuda/memory/kept_memory.h"

#include <algorithm>
#include <cstring>
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
    std::vector<int> taken;  ///< by device
    std::vector<PinnedWords> words;
};
AllKept &kept() {
    static auto *const only = new AllKept;
    return *only;
}

int &taken(AllKept &all, int device) {
    if (all.taken.size() <= static_cast<size_t>(device))
        all.taken.resize(static_cast<size_t>(device) + 1);
    return all.taken[static_cast<size_t>(device)];
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
    AllKept &all = kept();
    const std::lock_guard lock(all.mutex);
    const auto found = std::find_if(all.free.begin(), all.free.end(), [&](const KeptPiece &piece) {
        return piece.device == device && piece.bytes == bytes;
    });
    if (found != all.free.end()) {
        memory = found->memory;
        all.free.erase(found);
    } else {
        void *made = nullptr;
        FLX_TRY_CUDA(cudaMalloc(&made, bytes));
        memory = static_cast<char *>(made);
    }
    ++taken(all, device);
    return {};
}

void return_kept(int device, uint64_t bytes, char *memory) {
    if (memory == nullptr)
        return;
    AllKept &all = kept();
    const std::lock_guard lock(all.mutex);
    all.free.push_back({device, bytes, memory});
    --taken(all, device);
}

int kept_in_use(int device) {
    AllKept &all = kept();
    const std::lock_guard lock(all.mutex);
    return taken(all, device);
}

void free_kept(int device) {
    std::vector<char *> going;
    {
        AllKept &all = kept();
        const std::lock_guard lock(all.mutex);
        std::erase_if(all.free, [&](const KeptPiece &piece) {
            if (piece.device == device)
                going.push_back(piece.memory);
            return piece.device == device;
        });
    }
    for (char *memory : going)
        (void)check(cudaFree(memory), "to free memory");
}

Status take_words(PinnedWords &words) {
    AllKept &all = kept();
    const std::lock_guard lock(all.mutex);
    if (all.words.empty())
        FLX_TRY(pin_words(all.words));
    words = all.words.back();
    all.words.pop_back();
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
