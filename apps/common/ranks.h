/// \file ranks.h
/// How the ranks of a program say what went wrong, and agree on how it ends.
#pragma once

#include <flx.h>
#include <mpi.h>

#include <cstdio>
#include <string>

namespace flx::apps {

/// Writes at once.
void say(std::FILE *where, const std::string &text);

/// Starts MPI and ends it. Between, `parse` makes options of the command line and `run` gets them; where there are
/// none, rank 0 shows the text that there is instead. The exit code.
template <typename Parse, typename Run>
int with_mpi(int argc, char **argv, const Parse &parse, const Run &run) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    int rank = 0;
    int ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const auto parsed = parse(argc, argv, ranks);
    int code = parsed.exit_code;
    if (parsed.options) {
        code = run(*parsed.options);
    } else if (rank == 0) {
        say(code == 0 ? stdout : stderr, parsed.text);
    }
    MPI_Finalize();
    return code;
}

/// `PROGRAM: rank 2: WHAT: WHY`, with a newline.
[[nodiscard]] std::string sentence_of(int rank, const std::string &what, const std::string &why);

/// What FLX said last on this rank; what the status means where it said nothing.
[[nodiscard]] std::string reason(flx_status_t status);

/// Says a sentence and ends all ranks, which may wait for this one.
[[noreturn]] void give_up(const std::string &what, const std::string &why);

/// This rank's reason why something cannot be; where it has none and another rank has, that. Empty where none has one.
/// Collective.
[[nodiscard]] std::string agreed(const std::string &why_not);

/// Ranks that have a reason why not say it. True on all of them if none has one. Collective.
[[nodiscard]] bool all_can(const std::string &why_not);

/// True on all ranks if it is on rank 0. Collective.
[[nodiscard]] bool rank_0_says(bool value);

/// The lowest rank on which something failed says its sentence. True if there was one. Collective.
[[nodiscard]] bool any_failed(flx_status_t status, const std::string &what);

/// The exit code of a measurement: 2 where rank 0 could not write a file, with the sentence `problem`; 1 where results
/// were wrong; else 0. Collective.
[[nodiscard]] int exit_code(const std::string &problem, bool wrong);

}  // namespace flx::apps
