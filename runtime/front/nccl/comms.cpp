/// The functions that make, ask and end communicators.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <string>
#include <string_view>

#include "runtime/base/log.h"
#include "runtime/front/nccl/calls.h"
#include "runtime/front/nccl/exports.h"

namespace flx::nccl {
namespace {

std::string_view bytes_of(const ncclUniqueId &id) {
    return {id.internal, sizeof id.internal};
}

/// Makes a communicator by `make`, with FLX's side of it, at once or at the end of the group.
template <typename Make>
ncclResult_t create(ncclComm_t *handle, const std::string &key, const ncclConfig_t *config, Make &&make) {
    last_words().clear();
    Creation creation(handle, key, config);
    const ncclResult_t result = make();
    if (in_group() && (result == ncclSuccess || result == ncclInProgress)) {
        add_to_group(std::move(creation));
        return result;
    }
    std::vector<Creation> one;
    one.push_back(std::move(creation));
    finish_all(std::move(one), result);
    return result;
}

/// For what is derived from a communicator: the same on its ranks.
template <typename... Parts>
std::string key_from(const std::shared_ptr<Communicator> &parent, const Parts &...parts) {
    return parent == nullptr || parent->key.empty() ? std::string() : key_of({parent->key, parts...});
}

/// Of communicators that one process makes at once.
std::string key_of_process() {
    static std::atomic<unsigned> number{0};
    std::random_device random;
    return key_of({fmt::format("{} {} {} {}", getpid(), number++, random(), random())});
}

}  // namespace
}  // namespace flx::nccl

using namespace flx::nccl;

FLX_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank) {
    const auto make = [&] { return FLX_REAL(ncclCommInitRank, comm, nranks, commId, rank); };
    return Inside::now() ? make() : create(comm, key_of({bytes_of(commId)}), nullptr, make);
}

FLX_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
                                               ncclConfig_t *config) {
    const auto make = [&] { return FLX_REAL(ncclCommInitRankConfig, comm, nranks, commId, rank, config); };
    return Inside::now() ? make() : create(comm, key_of({bytes_of(commId)}), config, make);
}

FLX_EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId,
                                                 ncclUniqueId *commIds, ncclConfig_t *config) {
    const auto make = [&] { return FLX_REAL(ncclCommInitRankScalable, newcomm, nranks, myrank, nId, commIds, config); };
    if (Inside::now() || commIds == nullptr || nId < 1)
        return make();
    return create(newcomm, key_of({bytes_of(commIds[0]), "of several"}), config, make);
}

FLX_EXPORT ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist) {
    const auto make = [&] { return FLX_REAL(ncclCommInitAll, comm, ndev, devlist); };
    if (Inside::now() || comm == nullptr || ndev < 1)
        return make();
    last_words().clear();
    const std::string key = key_of_process();
    std::vector<Creation> creations;
    for (int rank = 0; rank < ndev; ++rank)
        creations.emplace_back(comm + rank, key, nullptr);
    const ncclResult_t result = make();
    finish_all(std::move(creations), result);
    return result;
}

FLX_EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config) {
    const auto make = [&] { return FLX_REAL(ncclCommSplit, comm, color, key, newcomm, config); };
    if (Inside::now())
        return make();
    const std::shared_ptr<Communicator> parent = find(comm);
    const unsigned number = parent ? parent->splits++ : 0;
    // Ranks without a color take part and get none.
    if (color < 0)
        return make();
    return create(newcomm, key_from(parent, "split", fmt::format("{} {}", number, color)), config, make);
}

FLX_EXPORT ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount,
                                       ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags) {
    const auto make = [&] {
        return FLX_REAL(ncclCommShrink, comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags);
    };
    if (Inside::now())
        return make();
    const std::shared_ptr<Communicator> parent = find(comm);
    // It ends what is under way on the parent; what FLX has there must end, too.
    if (parent && (shrinkFlags & kNcclShrinkAbort) != 0) {
        parent->abandon(Reason::revoked);
        free_later(parent);
    }
    std::string without = parent ? fmt::format("{}", parent->shrinks++) : "";
    for (int i = 0; excludeRanksList != nullptr && i < excludeRanksCount; ++i)
        without += fmt::format(" {}", excludeRanksList[i]);
    return create(newcomm, key_from(parent, "shrink", without), config, make);
}

FLX_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    if (!Inside::now())
        retire(comm);
    return FLX_REAL(ncclCommDestroy, comm);
}

FLX_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) {
    if (!Inside::now())
        flx::nccl::abort(comm);
    return FLX_REAL(ncclCommAbort, comm);
}

FLX_EXPORT ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags) {
    if (!Inside::now())
        if (const std::shared_ptr<Communicator> known = find(comm); known) {
            known->abandon(Reason::revoked);
            free_later(known);
        }
    return FLX_REAL(ncclCommRevoke, comm, revokeFlags);
}

/// FLX keeps what it has: it takes no memory that grows.
FLX_EXPORT ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags) {
    const ncclResult_t result = FLX_REAL(ncclCommSuspend, comm, flags);
    if (const std::shared_ptr<Communicator> known = Inside::now() ? nullptr : find(comm); known && !is_error(result))
        known->suspended.store(true, std::memory_order_release);
    return result;
}

FLX_EXPORT ncclResult_t ncclCommResume(ncclComm_t comm) {
    const ncclResult_t result = FLX_REAL(ncclCommResume, comm);
    if (const std::shared_ptr<Communicator> known = Inside::now() ? nullptr : find(comm); known && !is_error(result))
        known->suspended.store(false, std::memory_order_release);
    return result;
}

FLX_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError) {
    const std::shared_ptr<Communicator> known = Inside::now() ? nullptr : find(comm);
    if (known && asyncError != nullptr &&
        known->state.load(std::memory_order_acquire) == Communicator::State::preparing) {
        *asyncError = ncclInProgress;
        return ncclSuccess;
    }
    const ncclResult_t result = FLX_REAL(ncclCommGetAsyncError, comm, asyncError);
    if (known && known->active() && result == ncclSuccess && asyncError != nullptr && *asyncError == ncclSuccess) {
        // A call that is at work finds out itself.
        const std::unique_lock guard(known->mutex, std::try_to_lock);
        if (guard.owns_lock() && known->lane)
            if (flx::Status status = known->failure.ok() ? known->lane->failure() : known->failure; !status.ok())
                *asyncError = known->fail_with(std::move(status));
    }
    return result;
}

FLX_EXPORT const char *ncclGetLastError(ncclComm_t comm) {
    if (!last_words().empty())
        return last_words().c_str();
    return real().ncclGetLastError != nullptr ? real().ncclGetLastError(comm) : "no NCCL was found behind FLX";
}

FLX_EXPORT ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
                                               int winFlags) {
    const ncclResult_t result = FLX_REAL(ncclCommWindowRegister, comm, buff, size, win, winFlags);
    const bool symmetric = (winFlags & kNcclWindowSymmetric) != 0;
    if (Inside::now() || !symmetric || (result != ncclSuccess && result != ncclInProgress))
        return result;
    if (const std::shared_ptr<Communicator> known = find(comm); known) {
        const std::lock_guard guard(known->mutex);
        known->windows.push_back({win != nullptr ? *win : nullptr, {static_cast<const char *>(buff), size}});
    }
    return result;
}

FLX_EXPORT ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
    if (const std::shared_ptr<Communicator> known = Inside::now() ? nullptr : find(comm); known) {
        const std::lock_guard guard(known->mutex);
        std::erase_if(known->windows, [&](const auto &window) { return window.first == win; });
    }
    return FLX_REAL(ncclCommWindowDeregister, comm, win);
}
