#include "apps/common/ranks.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>

namespace flx::apps {

void say(std::FILE *where, const std::string &text) {
    std::fputs(text.c_str(), where);
    std::fflush(where);
}

std::string sentence_of(int rank, const std::string &what, const std::string &why) {
    return fmt::format("{}: rank {}: {}: {}\n", program_invocation_short_name, rank, what, why);
}

std::string reason(flx_status_t status) {
    const std::string said = flx_last_error();
    return said.empty() ? flx_strerror(status) : said;
}

void give_up(const std::string &what, const std::string &why) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    say(stderr, sentence_of(rank, what, why));
    MPI_Abort(MPI_COMM_WORLD, 3);
    std::abort();
}

std::string agreed(const std::string &why_not) {
    int bad = why_not.empty() ? 0 : 1;
    MPI_Allreduce(MPI_IN_PLACE, &bad, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return bad == 0 || !why_not.empty() ? why_not : "another rank lacks something";
}

bool all_can(const std::string &why_not) {
    if (!why_not.empty()) {
        int rank = 0;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        say(stderr, fmt::format("{}: rank {}: {}\n", program_invocation_short_name, rank, why_not));
    }
    return agreed(why_not).empty();
}

bool rank_0_says(bool value) {
    int flag = value ? 1 : 0;
    MPI_Bcast(&flag, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return flag == 1;
}

bool any_failed(flx_status_t status, const std::string &what) {
    int rank = 0;
    int ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int lowest = status == FLX_SUCCESS ? ranks : rank;
    MPI_Allreduce(MPI_IN_PLACE, &lowest, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (lowest == rank) {
        say(stderr, sentence_of(rank, what, reason(status)));
    }
    return lowest < ranks;
}

int exit_code(const std::string &problem, bool wrong) {
    say(stderr, problem);
    return rank_0_says(!problem.empty()) ? 2 : wrong ? 1 : 0;
}

}  // namespace flx::apps
