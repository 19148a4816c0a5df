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

Status agree(Bootstrap &bootstrap, Status status, std::string_view of, bool logs) {
    const uint32_t number = status.number();
    std::vector<uint32_t> numbers(bootstrap.size());
    FLX_TRY(bootstrap.allgather(&number, sizeof number, numbers.data()));
    const auto bad = std::find_if(numbers.begin(), numbers.end(), [](uint32_t other) { return other != 0; });
    if (bad == numbers.end())
        return {};
    const auto rank = static_cast<int>(bad - numbers.begin());
    // What a program's call has wrong is for the caller alone.
    if (logs && rank == bootstrap.rank() && status.code() != FLX_ERR_ARGUMENT)
        log().error("{}", status.sentence());
    std::vector<std::string> sentences;
    FLX_TRY(bootstrap.allgather_text(status.words(), sentences));
    if (!status.ok())
        return status;
    return fail(fault_of(*bad), "rank {}{}: {}", rank, of, sentences[rank]);
}

}  // namespace flx
