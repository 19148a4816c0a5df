/// Ranks that call collectives back to back while outage_test.py cuts their rails, and check every element. MPI is used
/// only before the first and after the last of them.
///
///     outage_ranks SECONDS BYTES [PAUSE_MS]
///
/// FLX_TEST_ONE_WAY: alltoallv in which rank 0 alone has something for the others, instead.
/// FLX_TEST_DEADLINE: the communicator's deadline in seconds, in flx_config_t.
/// PAUSE_MS: rank 1 computes for so long after each allreduce, outside FLX. Rank 0 prints, with CLOCK_REALTIME:
///     making             before the communicator is made
///     begin T            op START DURATION INDEX   (each operation)    end OPERATIONS WRONG
/// and any rank `error RANK T SENTENCE`.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "runtime/include/flx.h"

namespace {

double now() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void say(const std::string &text) {
    const std::string line = text + "\n";
    if (write(STDOUT_FILENO, line.data(), line.size()) < 0)
        _exit(3);
}

/// Element `i` of what `rank` contributes to operation `index`: sums over ranks do not overflow.
int32_t element(uint64_t index, int rank, size_t i) {
    return static_cast<int32_t>((i * 2654435761U + index * 40503U + static_cast<uint64_t>(rank) * 97U) & 0xFFFFFF);
}

constexpr uint64_t kCalls = 4;

struct Ranks {
    int rank = 0;
    int size = 1;
    flx_comm_t comm = nullptr;
    uint64_t wrong = 0;

    bool check(flx_status_t status) const {
        if (status == FLX_SUCCESS)
            return true;
        char text[2048];
        std::snprintf(text, sizeof text, "error %d %.3f %s", rank, now(), flx_last_error());
        say(text);
        return false;
    }

    /// BYTES from rank 0 to each other rank.
    bool call_one_way(uint64_t index, std::vector<int32_t> &in, std::vector<int32_t> &out) {
        const auto ranks = static_cast<size_t>(size);
        const size_t count = in.size() / ranks;
        std::vector<size_t> sends(ranks, rank == 0 ? count : 0), receives(ranks, 0), places(ranks);
        sends[0] = 0;
        receives[0] = rank == 0 ? 0 : count;
        for (size_t peer = 0; peer < ranks; ++peer)
            places[peer] = peer * count;
        for (size_t i = 0; i < in.size(); ++i)
            in[i] = element(index, rank, i);
        if (!check(flx_alltoallv(in.data(), out.data(), sends.data(), places.data(), receives.data(), places.data(),
                                 FLX_INT32, comm)))
            return false;
        for (size_t i = 0; rank != 0 && i < count; ++i)
            wrong += out[i] != element(index, 0, static_cast<size_t>(rank) * count + i) ? 1 : 0;
        return true;
    }

    /// One operation, by `index`: an allreduce, an allgather or a reduce-scatter of the whole vector, or an allreduce
    /// of its first elements.
    bool call(uint64_t index, std::vector<int32_t> &in, std::vector<int32_t> &out) {
        constexpr size_t kFew = 8192;
        const size_t few = std::min(in.size(), kFew);
        const size_t block = in.size() / size;
        const size_t mine = block * rank;
        for (size_t i = 0; i < in.size(); ++i)
            in[i] = element(index, rank, i);
        const double began = now();
        flx_status_t status = FLX_SUCCESS;
        switch (index % kCalls) {
            case 0:
                status = flx_allreduce(in.data(), out.data(), in.size(), FLX_INT32, FLX_SUM, comm);
                break;
            case 1:
                status = flx_allgather(in.data() + mine, out.data(), block, FLX_INT32, comm);
                break;
            case 2:
                status = flx_allreduce(in.data(), out.data(), few, FLX_INT32, FLX_SUM, comm);
                break;
            default:
                status = flx_reduce_scatter_block(in.data(), out.data(), block, FLX_INT32, FLX_SUM, comm);
                break;
        }
        if (!check(status))
            return false;
        if (rank == 0) {
            char text[128];
            std::snprintf(text, sizeof text, "op %.4f %.4f %llu", began, now() - began,
                          static_cast<unsigned long long>(index));
            say(text);
        }
        const uint64_t call = index % kCalls;
        const size_t count = call == 3 ? block : call == 2 ? few : in.size();
        for (size_t i = 0; i < count; ++i) {
            int32_t expected = 0;
            if (call == 1) {
                expected = element(index, static_cast<int>(i / block), i);
            } else {
                const size_t at = call == 3 ? mine + i : i;
                for (int r = 0; r < size; ++r)
                    expected += element(index, r, at);
            }
            if (out[i] != expected)
                ++wrong;
        }
        return true;
    }
};

}  // namespace

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
    const size_t bytes = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1 << 20;
    const int pause_ms = argc > 3 ? std::atoi(argv[3]) : 0;
    const char *enough_file = argc > 4 ? argv[4] : nullptr;  // when it exists, that was enough
    Ranks ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &ranks.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks.size);
    if (ranks.rank == 0)
        say("making");
    flx_config_t config = FLX_CONFIG_INIT;
    if (const char *deadline = std::getenv("FLX_TEST_DEADLINE"); deadline != nullptr)
        config.deadline_s = std::atof(deadline);
    bool fine = ranks.check(flx_comm_create(MPI_COMM_WORLD, &config, &ranks.comm));
    const size_t count = bytes / sizeof(int32_t) / ranks.size * ranks.size;
    std::vector<int32_t> in(count), out(count);
    if (ranks.rank == 0) {
        char text[64];
        std::snprintf(text, sizeof text, "begin %.3f", now());
        say(text);
    }
    const bool one_way = std::getenv("FLX_TEST_ONE_WAY") != nullptr;
    const double end = now() + seconds;
    uint64_t operations = 0;
    // All ranks go on until one has had enough, and learn so from a small operation.
    for (int32_t enough = 0; fine && enough == 0; ++operations) {
        fine = one_way ? ranks.call_one_way(operations, in, out) : ranks.call(operations, in, out);
        const int32_t mine = now() > end || (enough_file != nullptr && access(enough_file, F_OK) == 0) ? 1 : 0;
        fine = fine && ranks.check(flx_allreduce(&mine, &enough, 1, FLX_INT32, FLX_MAX, ranks.comm));
        if (pause_ms != 0 && ranks.rank == 1)
            std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
    }
    char text[128];
    std::snprintf(text, sizeof text, "end %d %llu %llu %s", ranks.rank, static_cast<unsigned long long>(operations),
                  static_cast<unsigned long long>(ranks.wrong), fine ? "fine" : "failed");
    say(text);
    flx_comm_free(&ranks.comm);
    MPI_Finalize();
    return 0;
}
