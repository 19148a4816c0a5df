/// \file flx_info.cpp
/// Prints what FLX knows: the machine, the links between the ranks (with reasons for those that are off), what was
/// measured, the algorithms and the knobs. Runs alone or under mpirun.
#include <flx.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "apps/common/command_line.h"
#include "apps/common/text_file.h"
#include "apps/flx_info/errors.h"
#include "apps/flx_info/machine.h"

namespace {

/// What the command line asks for.
struct Request {
    std::vector<std::string> sections;  ///< empty: all
    bool all_ranks = false;
    std::string machine_file;  ///< instead of a report, write the machine to it; empty: do not
    bool exercise = false;     ///< call collectives first, so that there is something to explain
};

struct Report {
    std::vector<std::string> lines;
};

void add_line(const char *text, void *report) {
    static_cast<Report *>(report)->lines.emplace_back(text);
}

/// `[links]` begins a section; what comes before the first one belongs to all.
bool is_header(const std::string &line) {
    return line.size() > 2 && line.front() == '[' && line.back() == ']';
}

/// The lines of `sections`, or all where none is named.
std::string select(const Report &report, const std::vector<std::string> &sections) {
    std::string text;
    bool wanted = true;
    for (const std::string &line : report.lines) {
        if (is_header(line)) {
            wanted = sections.empty();
            for (const std::string &section : sections)
                wanted |= line == "[" + section + "]";
        }
        if (wanted)
            text += line + "\n";
    }
    return text;
}

/// Writes the machine. A sentence: what is wrong; empty: nothing.
std::string write_machine(const Report &report, const std::string &file) {
    std::string text;
    std::string problem = machine_of(report.lines, text);
    if (problem.empty() && !flx::apps::write_text(file, text))
        problem = file + " cannot be written: " + std::strerror(errno);
    return problem;
}

/// Prints each rank's text in order, at rank 0, which is the only one whose output arrives in one piece.
void print_all(const std::string &text, int rank, int size) {
    constexpr int kTag = 1;
    if (rank != 0) {
        MPI_Send(text.data(), static_cast<int>(text.size()), MPI_CHAR, 0, kTag, MPI_COMM_WORLD);
        return;
    }
    std::cout << "== rank 0\n" << text;
    for (int other = 1; other < size; ++other) {
        MPI_Status status;
        int length = 0;
        MPI_Probe(other, kTag, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_CHAR, &length);
        std::string theirs(static_cast<size_t>(length), '\0');
        MPI_Recv(theirs.data(), length, MPI_CHAR, other, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        std::cout << "== rank " << other << "\n" << theirs;
    }
}

/// Calls that go short and long ways, until rank 0's clock has seen `seconds`.
flx_status_t exercise(flx_comm_t comm, double seconds) {
    constexpr std::array<size_t, 5> kCounts = {size_t{1} << 10, size_t{1} << 14, size_t{1} << 16, size_t{1} << 18,
                                               size_t{1} << 21};
    std::vector<float> in(kCounts.back(), 1), out(kCounts.back());
    const double end = MPI_Wtime() + seconds;
    for (double left = seconds; left > 0;) {
        for (const size_t count : kCounts) {
            // Many short ones, as programs make them.
            for (size_t call = 0; call < std::clamp<size_t>(kCounts.back() / count, 1, 64); ++call)
                if (const auto status = flx_allreduce(in.data(), out.data(), count, FLX_F32, FLX_SUM, comm);
                    status != FLX_SUCCESS)
                    return status;
            if (const auto status = flx_bcast(out.data(), count, FLX_F32, 0, comm); status != FLX_SUCCESS)
                return status;
        }
        left = end - MPI_Wtime();
        if (const auto status = flx_bcast(&left, 1, FLX_F64, 0, comm); status != FLX_SUCCESS)
            return status;
    }
    return FLX_SUCCESS;
}

/// The report of a communicator of all ranks. False if that failed, which is said.
bool run(const Request &request) {
    int rank = 0;
    int size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    flx_comm_t comm = nullptr;
    Report report;
    flx_status_t status = flx_comm_create(MPI_COMM_WORLD, nullptr, &comm);
    const bool connected = status == FLX_SUCCESS;
    std::string why = connected ? "" : flx_last_error();
    constexpr double kSeconds = 1;
    if (connected && request.exercise && exercise(comm, kSeconds) != FLX_SUCCESS)
        why = flx_last_error();
    // Without links the machine and the knobs can still be told, which may be what is needed to find out why.
    status = flx_report(connected ? comm : nullptr, add_line, &report);
    if (status != FLX_SUCCESS && why.empty())
        why = flx_last_error();

    const std::string text = select(report, request.sections);
    if (!request.machine_file.empty()) {
        if (rank == 0 && why.empty())
            why = write_machine(report, request.machine_file);
    } else if (request.all_ranks)
        print_all(text, rank, size);
    else if (rank == 0)
        std::cout << text;
    std::cout.flush();
    if (!why.empty() && (connected || rank == 0))  // what is wrong with making it is known to all alike
        std::cerr << "flx_info: rank " << rank << ": " << why << "\n";
    if (comm != nullptr)
        flx_comm_free(&comm);
    return why.empty();
}

/// What the guide says of an error code. False if there is no such code; then all that there are follow.
bool tell(const std::string &code) {
    const std::string section = section_of(kErrorsPage, code);
    if (!section.empty()) {
        std::cout << section;
        return true;
    }
    std::cerr << "flx_info: there is no error code " << code
              << "; these are, and FLX-E101, E101 and 101 are the same:\n"
              << codes_of(kErrorsPage);
    return false;
}

}  // namespace

int main(int argc, char **argv) {
    Request request;
    flx::apps::CommandLine line("flx_info",
                                "Prints what FLX knows of the machine, the links between the ranks, and its settings.");
    line.version(std::to_string(FLX_VERSION_MAJOR) + "." + std::to_string(FLX_VERSION_MINOR) + "." +
                 std::to_string(FLX_VERSION_PATCH));
    struct Flag {
        std::string name;
        std::vector<std::string> sections;
        std::string help;
    };
    const std::vector<Flag> flags{
        {"machine", {"machine"}, "this machine: cores, caches, memory, devices"},
        {"links",
         {"links", "costs", "shared memory", "gpus"},
         "the links between the ranks, also in memory and between GPUs, what was measured, and why some are off: "
         "under `mpirun -n N`, as one rank has none"},
        {"knobs", {"knobs"}, "every setting: value, where it came from, what it does"},
        {"algorithms", {"algorithms"}, "the algorithms and which collective takes which"}};
    for (const auto &[name, sections, help] : flags)
        line.flag(
            "--" + name,
            [&request, &sections = sections] {
                request.sections.insert(request.sections.end(), sections.begin(), sections.end());
            },
            "Print only " + help);
    line.flag(
        "--why",
        [&request] {
            request.exercise = true;
            request.sections.emplace_back("decisions");
        },
        "Call allreduces and bcasts of 4 KiB to 8 MiB for a second, then print what was decided from them, and why: "
        "under `mpirun -n N`");
    line.flag("--all", request.all_ranks, "Print the report of each rank, not only that of rank 0");
    line.option(
        "--json", request.machine_file,
        "Print nothing, and write what plans reckon with between hosts to this file of JSON, which flx_simulate "
        "reads as a machine; -: standard output");
    std::string code;
    const auto error =
        line.option("--error", code, "Print only what the guide says of an error code: FLX-E601, E601 or 601");
    bool read = line.parse(argc, argv);
    if (read && !request.machine_file.empty() && (!request.sections.empty() || request.all_ranks || error.given()))
        read = line.refuse("--json", "it goes with no other option, as nothing else is printed");
    if (!read)
        return line.say();
    if (!code.empty())
        return tell(code) ? 0 : 1;

    int provided = 0;
    if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
        std::cerr << "flx_info: MPI_Init failed\n";
        return 1;
    }
    const bool ok = run(request);
    MPI_Finalize();
    return ok ? 0 : 1;
}
