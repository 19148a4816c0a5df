#include "runtime/front/mpi/routing/collectives.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "runtime/base/text.h"
#include "runtime/front/mpi/routing/routes.h"

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
    "before FLX would pay",
    "to compare",
    "MPI is faster",
    "not blocking, and not measured in calls that block",
    "on GPUs, where FLX lacks it",
};

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

Status choose_collectives(std::string_view list, Choice &choice) {
    choice = {};
    if (list == "off")
        return {};
    if (list == "on" || list == "auto") {
        choice = {(uint32_t{1} << kCollectives.size()) - 1, list == "auto"};
        return {};
    }
    for (size_t begin = 0; begin <= list.size();) {
        const size_t end = std::min(list.find(',', begin), list.size());
        const std::string_view name = list.substr(begin, end - begin);
        const auto found = std::find(kCollectives.begin(), kCollectives.end(), name);
        if (found == kCollectives.end())
            return fail(Fault::knob_value,
                        "FLX_MPI names \"{}\", which is not a collective that FLX serves; auto, on, off, or some of {} "
                        "with commas between are allowed",
                        name, fmt::join(kCollectives, ", "));
        choice.mask |= 1U << (found - kCollectives.begin());
        begin = end + 1;
    }
    return {};
}

void Statistics::add(const Routes &routes) {
    for (size_t c = 0; c < CallClass::kCount; ++c) {
        const CallClass which(c);
        if (routes.calls_by_flx(which) + routes.calls_by_mpi(which) == 0)
            continue;
        Compared &compared = compared_[c];
        compared.by_flx += routes.calls_by_flx(which);
        compared.by_mpi += routes.calls_by_mpi(which);
        compared.saved_s += routes.saved(which);
        if (const Times times = routes.times(which); times.known()) {
            compared.mpi_s = times.mpi;
            compared.flx_s = times.flx;
        }
    }
    ++communicators_;
    making_s_ += routes.took();
}

/// What rank 0 saw of calls that went both ways.
std::string Statistics::comparison() const {
    if (compared_.empty())
        return {};
    double saved = -making_s_;
    std::string text = fmt::format("  {:<34} {:>12} {:>12} {:>12} {:>12}  saved (rank 0)\n", "from so many bytes up",
                                   "by FLX", "by MPI", "FLX us", "MPI us");
    for (const auto &[index, compared] : compared_) {
        text += fmt::format("  {:<34} {:>12} {:>12}", CallClass(index).name(), compared.by_flx, compared.by_mpi);
        if (compared.mpi_s > 0)
            text += fmt::format(" {:>12.1f} {:>12.1f}  {:.3f} s\n", compared.flx_s * 1e6, compared.mpi_s * 1e6,
                                compared.saved_s);
        else
            text += fmt::format(" {:>12} {:>12}  too few to compare\n", "", "");
        saved += compared.saved_s;
    }
    return text + fmt::format("  making {} communicators took {:.3f} s; all in all FLX saved {:.3f} s\n",
                              communicators_, making_s_, saved);
}

void Statistics::print(const std::string &cache) const {
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
    for (const std::string_view collective : kCollectives)
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
                text +=
                    fmt::format("  {:<34} {:>12} {:>12} {:>12} {:>12}  {}\n", fmt::format("{}{}", kForm[f], collective),
                                cell[0], short_bytes(cell[1]), calls, short_bytes(bytes), fmt::join(why, ", "));
        }
    text += comparison();
    if (!cache.empty())
        text += fmt::format("  what is kept: {}\n", cache);
    fmt::print(stderr, "{}", text);
    std::fflush(stderr);
}

Statistics &statistics() {
    static auto &all = *new Statistics;  // stays: MPI may be finalized by a destructor
    return all;
}

}  // namespace flx::preload
