#include "apps/bench/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

namespace flx::bench {
namespace {

bool starts_with_any(std::string_view text, const std::vector<std::string_view> &prefixes) {
    return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view p) { return text.starts_with(p); });
}

std::vector<std::string> environment() {
    std::vector<std::string> variables;
    for (char **entry = environ; *entry != nullptr; ++entry) {
        variables.emplace_back(*entry);
    }
    return variables;
}

std::string cpu_model() {
    std::ifstream file("/proc/cpuinfo");
    std::string line;
    while (std::getline(file, line)) {
        const size_t colon = line.find(": ");
        if (line.starts_with("model name") && colon != std::string::npos) {
            return line.substr(colon + 2);
        }
    }
    return "unknown CPU";
}

/// Settings in the user's own file of MCA parameters.
std::vector<std::string> user_mca_file() {
    std::vector<std::string> settings;
    const char *home = std::getenv("HOME");
    std::ifstream file(std::string(home != nullptr ? home : "") + "/.openmpi/mca-params.conf");
    std::string line;
    while (std::getline(file, line)) {
        if (const size_t start = line.find_first_not_of(" \t"); start != std::string::npos && line[start] != '#') {
            settings.push_back(line.substr(start));
        }
    }
    return settings;
}

int count_hosts(MPI_Comm comm) {
    std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
    int length = 0;
    int ranks = 0;
    MPI_Comm_size(comm, &ranks);
    MPI_Get_processor_name(name.data(), &length);
    std::vector<std::array<char, MPI_MAX_PROCESSOR_NAME>> names(static_cast<size_t>(ranks));
    MPI_Allgather(name.data(), MPI_MAX_PROCESSOR_NAME, MPI_CHAR, names.data(), MPI_MAX_PROCESSOR_NAME, MPI_CHAR, comm);
    return static_cast<int>(std::set(names.begin(), names.end()).size());
}

}  // namespace

std::vector<std::string> mpi_settings_of(const std::vector<std::string> &environment) {
    // These Open MPI's mpirun sets in every rank, whatever the command line says.
    static const std::vector<std::string_view> internal = {"OMPI_MCA_orte_",
                                                           "OMPI_MCA_ess",
                                                           "OMPI_MCA_pmix",
                                                           "OMPI_MCA_shmem_RUNTIME_QUERY_hint",
                                                           "OMPI_MCA_prte_",
                                                           "OMPI_MCA_initial_wdir",
                                                           "OMPI_MCA_mpi_oversubscribe"};
    static const std::vector<std::string_view> settings = {"OMPI_MCA_", "MPIR_CVAR_", "MPICH_", "UCX_"};
    std::vector<std::string> found;
    for (const std::string &entry : environment) {
        if (starts_with_any(entry, settings) && !starts_with_any(entry, internal)) {
            found.push_back(entry);
        }
    }
    std::sort(found.begin(), found.end());
    return found;
}

Machine describe_machine(MPI_Comm comm) {
    Machine machine;
    MPI_Comm_size(comm, &machine.ranks);
    machine.hosts = count_hosts(comm);

    char host[256] = "unknown host";
    gethostname(host, sizeof(host) - 1);
    machine.text =
        fmt::format("{}: {}, {} CPU{}; {} rank{} on {} host{}", host, cpu_model(), sysconf(_SC_NPROCESSORS_ONLN),
                    sysconf(_SC_NPROCESSORS_ONLN) == 1 ? "" : "s", machine.ranks, machine.ranks == 1 ? "" : "s",
                    machine.hosts, machine.hosts == 1 ? "" : "s");

    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(version, &length);
    machine.mpi = version;
    machine.mpi = machine.mpi.substr(0, machine.mpi.find_first_of(",\n"));

    const std::vector<std::string> variables = environment();
    machine.mpi_settings = mpi_settings_of(variables);
    for (const std::string &line : user_mca_file()) {
        machine.mpi_settings.push_back(line);
    }
    std::copy_if(variables.begin(), variables.end(), std::back_inserter(machine.flx_settings),
                 [](const std::string &entry) { return entry.starts_with("FLX_"); });
    std::sort(machine.flx_settings.begin(), machine.flx_settings.end());
    return machine;
}

nlohmann::ordered_json head_of(const Machine &machine, const std::string &mode) {
    return {{"machine", machine.text},
            {"ranks", machine.ranks},
            {"hosts", machine.hosts},
            {"mpi", machine.mpi},
            {"mpi_settings", machine.mpi_settings},
            {"flx_settings", machine.flx_settings},
            {"mode", mode}};
}

std::string settings_text(const std::vector<std::string> &settings) {
    return settings.empty() ? "all default" : fmt::format("{}", fmt::join(settings, " "));
}

}  // namespace flx::bench
