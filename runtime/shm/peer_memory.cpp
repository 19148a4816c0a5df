#include "peer_memory.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace flx::shm {

PeerMemory::PeerMemory(int rank, std::vector<int> pids)
    : rank_(rank), pids_(std::move(pids)), addresses_(pids_.size()) {}

Status PeerMemory::make(Bootstrap &bootstrap, std::vector<int> pids, std::unique_ptr<PeerMemory> &result,
                        std::string &why) {
    auto memory = std::unique_ptr<PeerMemory>(new PeerMemory(bootstrap.rank(), std::move(pids)));
    // The word at that address must be the peer's: a pid may mean another process where ranks are in containers.
    struct Word {
        uint64_t address;
        uint64_t value;
    };
    const uint64_t word = reinterpret_cast<uint64_t>(memory.get()) * 0x9e3779b97f4a7c15U ^ memory->pids_[memory->rank_];
    const Word mine{reinterpret_cast<uint64_t>(&word), word};
    std::vector<Word> words(bootstrap.size());
    FLX_TRY(bootstrap.allgather(&mine, sizeof mine, words.data()));
    Status status;
    for (int rank = 0; rank < bootstrap.size() && status.ok(); ++rank) {
        uint64_t value = 0;
        status = memory->read(rank, &value, words[rank].address, sizeof value);
        if (status.ok() && value != words[rank].value)
            status = fail(FLX_ERR_SYSTEM, "process {} is not rank {} here", memory->pids_[rank], rank);
    }
    std::vector<std::string> failures;
    FLX_TRY(bootstrap.allgather_text(status.sentence(), failures));
    const auto failed = std::ranges::find_if(failures, [](const std::string &text) { return !text.empty(); });
    if (failed == failures.end())
        result = std::move(memory);
    else
        why = *failed;
    return {};
}

Status PeerMemory::read(int rank, void *to, uint64_t address, size_t bytes) const {
    for (size_t done = 0; done < bytes;) {
        const iovec local{static_cast<std::byte *>(to) + done, bytes - done};
        const iovec remote{reinterpret_cast<void *>(address + done), bytes - done};
        const ssize_t got = process_vm_readv(pids_[rank], &local, 1, &remote, 1, 0);
        if (got <= 0)
            return fail(FLX_ERR_SYSTEM, "reading memory of rank {} (pid {}) failed: {}", rank, pids_[rank],
                        got == 0 ? "nothing was read" : std::strerror(errno));
        done += static_cast<size_t>(got);
    }
    return {};
}

Status PeerMemory::alltoall(const void *in, void *out, size_t block_bytes, uint32_t signature, Fused &fused,
                            Waiter &waiter) {
    const auto address = reinterpret_cast<uint64_t>(in);
    FLX_TRY(fused.allgather(&address, addresses_.data(), sizeof address, signature, waiter));
    const auto ranks = static_cast<int>(pids_.size());
    auto *to = static_cast<std::byte *>(out);
    for (int step = 1; step < ranks; ++step) {
        const int rank = (rank_ + step) % ranks;
        FLX_TRY(read(rank, to + rank * block_bytes, addresses_[rank] + rank_ * block_bytes, block_bytes));
    }
    std::memcpy(to + rank_ * block_bytes, static_cast<const std::byte *>(in) + rank_ * block_bytes, block_bytes);
    return fused.barrier(signature, waiter);
}

}  // namespace flx::shm
