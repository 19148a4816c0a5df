#include "runtime/link/bootstrap.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/log.h"

namespace flx {

Status Bootstrap::allgather_text(const std::string &mine, std::vector<std::string> &all) {
    const uint64_t length = mine.size();
    std::vector<uint64_t> lengths(size());
    FLX_TRY(allgather(&length, sizeof length, lengths.data()));
    const uint64_t longest = *std::max_element(lengths.begin(), lengths.end());
    all.assign(size(), {});
    if (longest == 0)
        return {};
    std::string padded = mine;
    padded.resize(longest);
    std::string gathered(longest * size(), '\0');
    FLX_TRY(allgather(padded.data(), longest, gathered.data()));
    for (int rank = 0; rank < size(); ++rank)
        all[rank] = gathered.substr(rank * longest, lengths[rank]);
    return {};
}

Status agree(Bootstrap &bootstrap, Status status, bool logs) {
    const auto code = static_cast<int32_t>(status.code());
    std::vector<int32_t> codes(bootstrap.size());
    FLX_TRY(bootstrap.allgather(&code, sizeof code, codes.data()));
    const auto bad = std::find_if(codes.begin(), codes.end(), [](int32_t other) { return other != FLX_SUCCESS; });
    if (bad == codes.end())
        return {};
    const auto rank = static_cast<int>(bad - codes.begin());
    // What a program's call has wrong is for the caller alone.
    if (logs && rank == bootstrap.rank() && status.code() != FLX_ERR_ARGUMENT)
        log().error("{}", status.sentence());
    std::vector<std::string> sentences;
    FLX_TRY(bootstrap.allgather_text(status.sentence(), sentences));
    if (!status.ok())
        return status;
    return {static_cast<flx_status_t>(*bad), fmt::format("rank {}: {}", rank, sentences[rank])};
}

}  // namespace flx
