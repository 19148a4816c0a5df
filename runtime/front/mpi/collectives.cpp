#include "runtime/front/mpi/collectives.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace flx::preload {
namespace {

constexpr std::array<std::string_view, kForms> kForm = {"", "non-blocking ", "persistent "};

constexpr std::array<std::string_view, kReasons> kWhy = {
    "",
    "not in FLX_MPI",
    "no bytes",
    "arguments for MPI to judge",
    "a type or reduction that FLX lacks",
    "the program's reduction, which the progress thread would call",
    "one rank",
    "intercommunicator",
    "ranks of several MPI_COMM_WORLDs",
    "no FLX communicator could be made",
    "not blocking, and MPI is not Open MPI 4.1",
    "not blocking, before FLX served a blocking call on the communicator",
    "more persistent ones than FLX serves at a time",
    "within MPI_Finalize",
};

std::string short_bytes(uint64_t bytes) {
    constexpr std::array<const char *, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = static_cast<double>(bytes);
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit)
        value /= 1024;
    return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 1, kUnits[unit]);
}

/// Sums over ranks. False where not all ranks came within the time: one may have died.
bool add_up(std::vector<uint64_t> &numbers, double patience_s) {
    // What a sum that never ends would be written into is kept.
    auto *mine = new std::vector<uint64_t>(numbers);
    auto *sum = new std::vector<uint64_t>(numbers.size());
    MPI_Request request = MPI_REQUEST_NULL;
    if (PMPI_Iallreduce(mine->data(), sum->data(), static_cast<int>(mine->size()), MPI_UINT64_T, MPI_SUM,
                        MPI_COMM_WORLD, &request) != MPI_SUCCESS)
        return false;
    const double began = PMPI_Wtime();
    int done = 0;
    while (PMPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) {
        if (PMPI_Wtime() - began > patience_s)
            return false;
        usleep(1000);
    }
    numbers = *sum;
    delete mine;
    delete sum;
    return true;
}

}  // namespace

std::string choose_collectives(std::string_view list, uint32_t &mask) {
    mask = 0;
    if (list == "none")
        return {};
    if (list == "all") {
        mask = ~uint32_t{0};
        return {};
    }
    for (size_t begin = 0; begin <= list.size();) {
        const size_t end = std::min(list.find(',', begin), list.size());
        const std::string_view name = list.substr(begin, end - begin);
        const auto found = std::find(kCollectives.begin(), kCollectives.end(), name);
        if (found == kCollectives.end())
            return fmt::format(
                "FLX_MPI names \"{}\", which is not a collective that FLX serves; all, none, or some of {} "
                "with commas between are allowed",
                name, fmt::join(kCollectives, ", "));
        mask |= 1U << (found - kCollectives.begin());
        begin = end + 1;
    }
    return {};
}

void Statistics::print() const {
    int rank = 0;
    int size = 1;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    std::vector<uint64_t> numbers;
    for (const auto &collective : cells_)
        for (const auto &form : collective)
            for (const Cell &cell : form) {
                numbers.push_back(cell.calls);
                numbers.push_back(cell.bytes);
            }
    constexpr double kPatienceS = 10;
    const bool all = add_up(numbers, kPatienceS);
    if (rank != 0)
        return;
    std::string text =
        all ? fmt::format("flx_mpi: collectives of {} ranks, all together\n", size)
            : fmt::format("flx_mpi: collectives of rank 0 (not all of {} ranks reached the end)\n", size);
    text += fmt::format("  {:<34} {:>12} {:>12} {:>12} {:>12}  why passed on\n", "", "served", "", "passed on", "");
    size_t at = 0;
    for (size_t c = 0; c < kCollectives.size(); ++c)
        for (size_t f = 0; f < kForms; ++f) {
            std::array<uint64_t, 2 * kReasons> cell{};
            std::copy_n(numbers.begin() + static_cast<ptrdiff_t>(at), cell.size(), cell.begin());
            at += cell.size();
            uint64_t calls = 0;
            uint64_t bytes = 0;
            std::vector<std::string> why;
            for (size_t r = 1; r < kReasons; ++r) {
                calls += cell[2 * r];
                bytes += cell[2 * r + 1];
                if (cell[2 * r] != 0)
                    why.push_back(fmt::format("{} {}", cell[2 * r], kWhy[r]));
            }
            if (cell[0] + calls != 0)
                text += fmt::format("  {:<34} {:>12} {:>12} {:>12} {:>12}  {}\n",
                                    fmt::format("{}{}", kForm[f], kCollectives[c]), cell[0], short_bytes(cell[1]),
                                    calls, short_bytes(bytes), fmt::join(why, ", "));
        }
    fmt::print(stderr, "{}", text);
    std::fflush(stderr);
}

Statistics &statistics() {
    static Statistics all;
    return all;
}

}  // namespace flx::preload
