/// What a communicator takes of each of its ranks: growth_ranks PER_HOST. Started by mpirun; rank 0 prints JSON. Ranks
/// count as hosts of PER_HOST each; 0: all are on one. For ci/growth.
#include <dirent.h>
#include <dlfcn.h>
#include <flx.h>
#include <malloc.h>
#include <mpi.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace {

/// What this rank had of others by MPI since the last reset.
struct Exchanged {
    double calls = 0;
    double bytes = 0;
};
Exchanged exchanged;

template <typename Function>
Function next(const char *name) {
    return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// FLX calls MPI by these names, and finds those of the program first. Of all that exchanges something it calls no
// others (runtime/process/mpi_part.cpp).
extern "C" {
int PMPI_Allgather(const void *mine, int count, MPI_Datatype type, void *all, int counts, MPI_Datatype types,
                   MPI_Comm comm) {
    static const auto real = next<decltype(&PMPI_Allgather)>("PMPI_Allgather");
    int size = 0;
    int bytes = 0;
    MPI_Comm_size(comm, &size);
    MPI_Type_size(type, &bytes);
    ++exchanged.calls;
    exchanged.bytes += static_cast<double>(bytes) * count * size;
    return real(mine, count, type, all, counts, types, comm);
}
int PMPI_Barrier(MPI_Comm comm) {
    static const auto real = next<decltype(&PMPI_Barrier)>("PMPI_Barrier");
    ++exchanged.calls;
    return real(comm);
}
int PMPI_Ibarrier(MPI_Comm comm, MPI_Request *request) {
    static const auto real = next<decltype(&PMPI_Ibarrier)>("PMPI_Ibarrier");
    ++exchanged.calls;
    return real(comm, request);
}
int PMPI_Comm_split(MPI_Comm comm, int colour, int key, MPI_Comm *result) {
    static const auto real = next<decltype(&PMPI_Comm_split)>("PMPI_Comm_split");
    ++exchanged.calls;
    return real(comm, colour, key, result);
}
int PMPI_Comm_dup(MPI_Comm comm, MPI_Comm *result) {
    static const auto real = next<decltype(&PMPI_Comm_dup)>("PMPI_Comm_dup");
    ++exchanged.calls;
    return real(comm, result);
}
}

namespace {

double open_descriptors() {
    DIR *folder = opendir("/proc/self/fd");
    double count = -1;  // that of the folder
    while (folder != nullptr && readdir(folder) != nullptr)
        ++count;
    if (folder != nullptr)
        closedir(folder);
    return count;
}

/// Memory that belongs to this process alone, in KiB.
double private_kib() {
    std::ifstream rollup("/proc/self/smaps_rollup");
    std::string word;
    double sum = 0;
    while (rollup >> word)
        if (word == "Private_Clean:" || word == "Private_Dirty:") {
            double kib = 0;
            rollup >> kib;
            sum += kib;
        }
    return sum;
}

/// What was allocated and is not free: it tells growth by a few bytes a rank, which pages do not.
double heap_kib() {
    const struct mallinfo2 now = mallinfo2();
    return static_cast<double>(now.uordblks + now.hblkhd) / 1024;
}

double shared_kib() {
    struct statvfs of {};
    statvfs("/dev/shm", &of);
    return static_cast<double>(of.f_blocks - of.f_bfree) * static_cast<double>(of.f_frsize) / 1024;
}

[[noreturn]] void stop(const char *what) {
    std::fprintf(stderr, "growth_ranks: %s: %s\n", what, flx_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::abort();
}

void need(flx_status_t status, const char *what) {
    if (status != FLX_SUCCESS)
        stop(what);
}

struct Figures {
    double descriptors = open_descriptors();
    double heap = heap_kib();
    double private_memory = private_kib();
    double shared_memory = shared_kib();
};

}  // namespace

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank = 0;
    int ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int per_host = 0;
    const char *text = argc == 2 ? argv[1] : "";
    if (std::from_chars(text, text + std::strlen(text), per_host).ec != std::errc() || per_host < 0) {
        if (rank == 0)
            std::fprintf(stderr, "usage: growth_ranks PER_HOST, ranks of each host; 0: all\n");
        MPI_Finalize();
        return 1;
    }
    if (per_host > 0)
        setenv("FLX_HOST_ID", ("host" + std::to_string(rank / per_host)).c_str(), 1);

    const Figures before;
    MPI_Barrier(MPI_COMM_WORLD);
    exchanged = {};
    const double began = MPI_Wtime();
    flx_comm_t comm = nullptr;
    need(flx_comm_create(MPI_COMM_WORLD, nullptr, &comm), "making the communicator");
    const double took = MPI_Wtime() - began;
    const Exchanged start = exchanged;
    MPI_Barrier(MPI_COMM_WORLD);
    const Figures made;
    // Short and long calls of each kind of schedule: among all, from one, and of blocks.
    constexpr size_t kMost = 1 << 18;
    std::vector<float> in(kMost, 1);
    std::vector<float> out(kMost);
    const double filled = private_kib();
    for (const size_t count : {size_t{16}, size_t{1} << 14, kMost}) {
        need(flx_allreduce(in.data(), out.data(), count, FLX_F32, FLX_SUM, comm), "an allreduce");
        need(flx_bcast(out.data(), count, FLX_F32, 0, comm), "a bcast");
        need(flx_allgather(in.data(), out.data(), std::max<size_t>(1, count / static_cast<size_t>(ranks)), FLX_F32,
                           comm),
             "an allgather");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const Figures used;

    // Of the rank that has most, but shared memory: all ranks of the machine together.
    std::array<double, 8> mine = {start.calls,
                                  start.bytes,
                                  took * 1e3,
                                  made.descriptors - before.descriptors,
                                  used.descriptors - before.descriptors,
                                  made.private_memory - before.private_memory,
                                  made.heap - before.heap,
                                  used.private_memory - filled};
    std::array<double, 8> most{};
    MPI_Reduce(mine.data(), most.data(), static_cast<int>(mine.size()), MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        std::printf(
            "{\"ranks\": %d, \"hosts\": %d, \"exchanges\": %.0f, \"exchanged_bytes\": %.0f, \"ms\": %.0f, "
            "\"descriptors\": %.0f, \"descriptors_used\": %.0f, \"private_kib\": %.0f, \"heap_kib\": %.0f, "
            "\"private_kib_of_calls\": %.0f, \"shared_kib\": %.0f, \"shared_kib_used\": %.0f}\n",
            ranks, per_host == 0 ? 1 : (ranks + per_host - 1) / per_host, most[0], most[1], most[2], most[3], most[4],
            most[5], most[6], most[7], made.shared_memory - before.shared_memory,
            used.shared_memory - before.shared_memory);
    need(flx_comm_free(&comm), "freeing the communicator");
    MPI_Finalize();
    return 0;
}
