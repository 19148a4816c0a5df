/// flx_tune: calls MPI's collectives in many sizes, so that libflx_mpi.so in front of MPI measures them. It is a
/// program that knows nothing of FLX otherwise: who gets a call, and what is kept, the library decides as for any
/// program.
#include <dlfcn.h>
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "apps/bench/sizes.h"
#include "apps/common/progress.h"
#include "apps/common/ranks.h"
#include "apps/flx_tune/calls.h"
#include "apps/flx_tune/options.h"

namespace flx::tune {
namespace {

/// Calls of a class one after another: as many as the library compares, or fewer where they take long.
constexpr int kMostInARow = 96;
constexpr double kLongestInARowS = 0.25;

/// Whether what this program calls as MPI_Allreduce is the library in front of MPI.
bool runs_behind_flx() {
    Dl_info found{};
    return dladdr(dlsym(RTLD_DEFAULT, "MPI_Allreduce"), &found) != 0 && found.dli_fname != nullptr &&
           std::string_view(found.dli_fname).find("libflx_mpi") != std::string_view::npos;
}

class Tuner {
  public:
    explicit Tuner(const Options &options) : options_(options), calls_(options.largest), began_(MPI_Wtime()) {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    }

    /// Goes through all collectives and sizes again and again until the time is up.
    void run() {
        apps::Progress progress("flx_tune", 1000, rank_ == 0);
        bool over = false;
        while (!over) {
            for (const std::string &name : options_.collectives)
                for (size_t bytes = 4; bytes <= options_.largest; bytes *= 4) {
                    call_in_a_row(name, bytes);
                    progress.update(static_cast<size_t>(1000 * std::min(1.0, spent() / options_.seconds)));
                    if (name == "barrier")
                        break;
                }
            ++rounds_;
            over = apps::rank_0_says(spent() >= options_.seconds);
        }
        progress.finish();
        if (rank_ == 0)
            apps::say(stdout,
                      fmt::format("{} collectives, up to {}: {} rounds in {:.0f} s. flx-run --stats shows what was "
                                  "found\n",
                                  options_.collectives.size(), bench::size_text(options_.largest), rounds_, spent()));
    }

  private:
    [[nodiscard]] double spent() const { return MPI_Wtime() - began_; }

    /// As many calls as rank 0 says, by what they took it before.
    void call_in_a_row(const std::string &name, size_t bytes) {
        double &took = took_[{name, bytes}];
        int number = took > 0 ? static_cast<int>(std::clamp(kLongestInARowS / took, 2.0, double{kMostInARow})) : 8;
        MPI_Bcast(&number, 1, MPI_INT, 0, MPI_COMM_WORLD);
        const double began = MPI_Wtime();
        for (int call = 0; call < number; ++call)
            calls_.call(name, bytes);
        took = std::max((MPI_Wtime() - began) / number, 1e-9);
    }

    const Options &options_;
    Calls calls_;
    int rank_ = 0;
    int rounds_ = 0;
    double began_;
    std::map<std::pair<std::string, size_t>, double> took_;
};

int run(const Options &options) {
    if (!apps::all_can(runs_behind_flx() ? "" : "it must be started by flx-run: mpirun -n N flx-run -- flx_tune"))
        return 2;
    Tuner(options).run();
    return 0;
}

}  // namespace
}  // namespace flx::tune

int main(int argc, char **argv) {
    return flx::apps::with_mpi(
        argc, argv, [](int count, char **words, int /*ranks*/) { return flx::tune::parse(count, words); },
        [](const flx::tune::Options &options) { return flx::tune::run(options); });
}
