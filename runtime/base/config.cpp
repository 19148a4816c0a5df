#include "runtime/base/config.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>
#include <cmath>
#include <limits>

namespace flx {
namespace {

constexpr double kKiB = 1024.0;
constexpr double kMiB = 1024.0 * kKiB;
constexpr double kGiB = 1024.0 * kMiB;

// The knobs in order of name. Unset text means "not forced".
constexpr std::array kKnobs = {
    Knob{"FLX_ALGORITHM", KnobType::text, "", 0, 0, "", "",
         "algorithm per collective, also by size or from a file, e.g. "
         "allreduce:ring@64K-,bcast:file:tree.json,file:rules.txt; "
         "empty: chosen by cost",
         KnobTier::user, KnobScope::communicator},
    Knob{"FLX_CACHE", KnobType::text, "", 0, 0, "", "",
         "folder in which FLX keeps what it measured for the next program; empty: flx in the user's cache "
         "(~/.cache); none",
         KnobTier::user, KnobScope::rank},
    Knob{"FLX_CHECK", KnobType::integer, "0", 0, 1, "", "",
         "1: compare the arguments of every call between ranks first, but of those that do not wait", KnobTier::user,
         KnobScope::communicator},
    Knob{
        "FLX_COPY_ENGINE", KnobType::choice, "auto", 0, 0, "auto|on|off", "",
        "a GPU's copy engines take a part of large copies between ranks' memory of flx_malloc: auto: where the program "
        "uses a GPU itself; on: a GPU is opened for that",
        KnobTier::expert, KnobScope::rank},
    Knob{"FLX_CUDA_BLOCKS", KnobType::integer, "128", 0, 128, "", "blocks",
         "multiprocessors that the largest kernel of a collective on GPUs takes; 0: none where nothing is added, and "
         "few where something is",
         KnobTier::user, KnobScope::gpus},
    Knob{"FLX_CUDA_ENGINES", KnobType::size, "0", 0, 1024 * kGiB, "", "",
         "least vector that copy engines move between GPUs; 0: where they were measured to be faster", KnobTier::expert,
         KnobScope::gpus},
    Knob{"FLX_CUDA_LEAST", KnobType::size, "32M", 4 * kMiB, 64 * kGiB, "", "",
         "memory of each GPU that peers write into, of a communicator that finds no room in FLX_CUDA_STAGING",
         KnobTier::expert, KnobScope::gpus},
    Knob{"FLX_CUDA_PINNED", KnobType::size, "64M", 0, 16 * kGiB, "", "",
         "host memory that each GPU pins for a share of large collectives over PCIe, or for all that goes between "
         "hosts; 0: none",
         KnobTier::user, KnobScope::gpus},
    Knob{
        "FLX_CUDA_SMALL", KnobType::size, "1M", 0, 64 * kMiB, "", "",
        "most that a GPU sends to all others in packets and lines that carry their own flags; between two, eight times "
        "that",
        KnobTier::expert, KnobScope::gpus},
    Knob{"FLX_CUDA_STAGING", KnobType::size, "256M", 8 * kMiB, 64 * kGiB, "", "",
         "memory of each GPU that peers write into, for all communicators of a process; those that find no room in it "
         "have FLX_CUDA_LEAST each",
         KnobTier::user, KnobScope::gpus},
    Knob{"FLX_CUDA_TIERS", KnobType::choice, "auto", 0, 0, "auto|on|off", "",
         "GPU memory between hosts: on: by NVLink within each host, and only what is left between them; off: all of it "
         "through host memory; auto: whichever is quicker for the size",
         KnobTier::expert, KnobScope::communicator},
    Knob{"FLX_DEADLINE", KnobType::real, "30", 0.1, 86400, "", "seconds",
         "silence of a peer, or no rail to it, is an error after this", KnobTier::user, KnobScope::rank},
    Knob{"FLX_FROZEN", KnobType::integer, "0", 0, 1, "", "",
         "1: keep the first partition vectors and ways through shared memory, do not adapt them; the cores alone copy",
         KnobTier::user, KnobScope::communicator},
    Knob{"FLX_FUSED_BYTES", KnobType::size, "32K", 0, kMiB, "", "",
         "largest payload that takes the fused shared-memory path", KnobTier::expert, KnobScope::communicator},
    Knob{"FLX_HOST_ID", KnobType::text, "", 0, 0, "", "",
         "ranks with equal text count as one host; empty: found by the system", KnobTier::expert, KnobScope::rank},
    Knob{"FLX_HUGE_PAGES", KnobType::choice, "on", 0, 0, "on|off", "",
         "on: host buffers that ranks of a host reach through the kernel again and again move to huge pages",
         KnobTier::expert, KnobScope::rank},
    Knob{"FLX_LATE_WARNING", KnobType::real, "10", 0.1, 86400, "", "seconds",
         "a peer that is alive but late is named in a warning after this", KnobTier::user, KnobScope::rank},
    Knob{"FLX_LEND", KnobType::choice, "on", 0, 0, "on|own|off", "",
         "where ranks of a host own different rails: on: an exchange takes the own one and borrows others' while they "
         "are idle, but for long alltoalls; own: the own one carries all; off: all ranks share all rails",
         KnobTier::expert, KnobScope::communicator},
    Knob{"FLX_LEND_CHUNKS", KnobType::integer, "4", 1, 4096, "", "",
         "chunks that all borrowers of a rail together may have under way on it", KnobTier::expert,
         KnobScope::communicator},
    Knob{"FLX_LINKS", KnobType::text, "auto", 0, 0, "", "", "links that may be used, e.g. shm,eth0; auto: all found",
         KnobTier::user, KnobScope::communicator},
    Knob{"FLX_LOG", KnobType::choice, "warn", 0, 0, "error|warn|info|debug", "", "least level of lines in the log",
         KnobTier::user, KnobScope::rank},
    Knob{"FLX_MPI", KnobType::text, "auto", 0, 0, "", "",
         "what libflx_mpi.so (flx-run) serves: auto: where FLX is measured to be faster; on: all that it can; off; or "
         "these collectives alone, e.g. allreduce,bcast",
         KnobTier::user, KnobScope::rank},
    Knob{"FLX_MPI_GPU", KnobType::choice, "auto", 0, 0, "auto|on|off", "",
         "whether the MPI behind libflx_mpi.so takes GPU memory in its collectives; auto: what it says of itself",
         KnobTier::expert, KnobScope::rank},
    Knob{"FLX_NCCL", KnobType::choice, "auto", 0, 0, "auto|on|off", "",
         "what libflx_nccl.so (flx-run --nccl) serves: auto: where FLX is measured to be faster; on: all that it can",
         KnobTier::user, KnobScope::rank},
    Knob{"FLX_NCCL_LIBRARY", KnobType::text, "libnccl.so.2", 0, 0, "", "",
         "the NCCL behind libflx_nccl.so, where the program has not loaded one", KnobTier::expert, KnobScope::rank},
    Knob{"FLX_OWN_RAIL", KnobType::text, "auto", 0, 0, "", "",
         "the rail that this rank owns, by name; auto: by its order on the host; none", KnobTier::expert,
         KnobScope::rank},
    Knob{"FLX_PARTITION", KnobType::text, "", 0, 0, "", "",
         "forced shares, e.g. shm:.9,eth0:.1 or, between GPUs, nvlink:.93,pcie:.07; empty: the controller's",
         KnobTier::user, KnobScope::communicator},
    Knob{"FLX_PROBE_MS", KnobType::integer, "200", 0, 10000, "", "milliseconds",
         "time for measuring links when a communicator is made; 0: not measured", KnobTier::user,
         KnobScope::communicator},
    Knob{"FLX_PROGRESS_THREAD", KnobType::choice, "off", 0, 0, "on|off", "",
         "on: a thread moves non-blocking operations while the program computes; it sleeps while there are none",
         KnobTier::user, KnobScope::rank},
    Knob{"FLX_RAILS", KnobType::text, "auto", 0, 0, "", "",
         "UCX rails to open as tls/device, e.g. tcp/eth0,posix/memory; auto: every usable network device; none",
         KnobTier::user, KnobScope::rank},
    Knob{"FLX_RAIL_CHUNK", KnobType::size, "128K", 32 * kKiB, 16 * kMiB, "", "",
         "largest payload of one chunk on a rail", KnobTier::expert, KnobScope::communicator},
    Knob{"FLX_RAIL_TIMEOUT", KnobType::real, "0.3", 0.05, 60, "", "seconds",
         "a rail that is silent for so long, while its peer answers elsewhere, is lost: others carry on",
         KnobTier::expert, KnobScope::rank},
    Knob{"FLX_RAIL_WINDOW", KnobType::size, "2M", 64 * kKiB, kGiB, "", "",
         "payload of a communicator that may be unacknowledged per peer and rail", KnobTier::expert, KnobScope::rank},
    Knob{"FLX_RECORD", KnobType::choice, "on", 0, 0, "on|off", "",
         "on: the last calls of each process are kept in /dev/shm for flx_top, also after its death; off: they are not",
         KnobTier::expert, KnobScope::rank},
    Knob{"FLX_RELAY_BYTES", KnobType::size, "16M", 0, kGiB, "", "",
         "memory for what others send through this process when they have no rail left between them; 0: none",
         KnobTier::expert, KnobScope::rank},
    Knob{"FLX_SHM_BYTES", KnobType::size, "4M", 256 * kKiB, kGiB, "", "", "shared memory for channels, per rank",
         KnobTier::user, KnobScope::communicator},
    Knob{"FLX_SLEEP_US", KnobType::integer, "-1", -1, 1e6, "", "microseconds",
         "how long a wait yields the core before it sleeps until it is woken; -1: by cores and ranks", KnobTier::expert,
         KnobScope::rank},
    Knob{"FLX_SPIN_US", KnobType::integer, "-1", -1, 1e6, "", "microseconds",
         "how long a wait spins before it yields the core; -1: by cores, ranks, and who else wants the core",
         KnobTier::user, KnobScope::rank},
    Knob{"FLX_STATS", KnobType::integer, "0", 0, 1, "", "",
         "1: libflx_mpi.so and libflx_nccl.so (flx-run) say at the end which calls they served, which not, and why",
         KnobTier::user, KnobScope::rank},
    Knob{"FLX_STRICT", KnobType::integer, "0", 0, 1, "", "", "1: the bits of adding in rank order, for every size",
         KnobTier::user, KnobScope::communicator},
    Knob{"FLX_TRACE", KnobType::text, "", 0, 0, "", "",
         "file for a trace of all calls, which Perfetto and chrome://tracing show; empty: none", KnobTier::user,
         KnobScope::program},
};

constexpr std::string_view kPrefix = "FLX_";
// Switches of the project's own test programs, not of the library.
constexpr std::string_view kTestPrefix = "FLX_TEST_";

const Knob *find(std::string_view name) {
    const auto it = std::find_if(kKnobs.begin(), kKnobs.end(), [&](const Knob &knob) { return knob.name == name; });
    return it == kKnobs.end() ? nullptr : &*it;
}

/// Levenshtein's distance: inserted, deleted and replaced characters.
size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<size_t> row(b.size() + 1);
    for (size_t j = 0; j <= b.size(); ++j)
        row[j] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.size(); ++j) {
            const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
        }
    }
    return row[b.size()];
}

Status unknown(std::string_view name) {
    const auto nearest = std::min_element(kKnobs.begin(), kKnobs.end(), [&](const Knob &a, const Knob &b) {
        return edit_distance(name, a.name) < edit_distance(name, b.name);
    });
    return fail(Fault::unknown_knob, "{} is not a knob of FLX; did you mean {}? flx_info --knobs lists all", name,
                nearest->name);
}

bool parse_integer(std::string_view text, int64_t &value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return !text.empty() && error == std::errc{} && end == text.data() + text.size();
}

bool parse_real(std::string_view text, double &value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return !text.empty() && error == std::errc{} && end == text.data() + text.size() && std::isfinite(value);
}

/// `64K` from a number of bytes that is a multiple of it.
std::string short_size(double bytes) {
    for (const auto &[unit, letter] : {std::pair{kGiB, "G"}, {kMiB, "M"}, {kKiB, "K"}})
        if (bytes >= unit && std::fmod(bytes, unit) == 0)
            return fmt::format("{}{}", bytes / unit, letter);
    return fmt::format("{}", bytes);
}

/// `a number of seconds from 0.1 to 86400 is allowed`.
std::string allowed(const Knob &knob) {
    return what_is_allowed(knob) + " is allowed";
}

bool valid(const Knob &knob, std::string_view value) {
    const auto inside = [&](double number) { return number >= knob.low && number <= knob.high; };
    switch (knob.type) {
        case KnobType::integer: {
            int64_t number = 0;
            return parse_integer(value, number) && inside(static_cast<double>(number));
        }
        case KnobType::real: {
            double number = 0;
            return parse_real(value, number) && inside(number);
        }
        case KnobType::size: {
            size_t bytes = 0;
            return parse_size(value, bytes).ok() && inside(static_cast<double>(bytes));
        }
        case KnobType::choice: {
            std::string_view rest = knob.choices;
            while (true) {
                const auto bar = rest.find('|');
                if (rest.substr(0, bar) == value)
                    return true;
                if (bar == std::string_view::npos)
                    return false;
                rest = rest.substr(bar + 1);
            }
        }
        case KnobType::text:
            break;
    }
    return true;
}

size_t index_of([[maybe_unused]] KnobType type, std::string_view name) {
    const Knob *knob = find(name);
    assert(knob != nullptr && "no such knob");
    assert(knob->type == type || (type == KnobType::text && knob->type == KnobType::choice));
    return static_cast<size_t>(knob - kKnobs.data());
}

/// Takes the first `NAME=VALUE` from a list of them. Values may have spaces.
std::string_view take_knob(std::string_view &list) {
    const size_t end = list.find(" FLX_");
    const std::string_view first = list.substr(0, end);
    list = end == std::string_view::npos ? std::string_view() : list.substr(end + 1);
    return first;
}

}  // namespace

std::string what_is_allowed(const Knob &knob) {
    const std::string of = knob.unit.empty() ? "" : fmt::format(" of {}", knob.unit);
    switch (knob.type) {
        case KnobType::integer:
            if (knob.low == 0 && knob.high == 1)
                return "0 or 1";
            return fmt::format("a whole number{} from {} to {}", of, static_cast<int64_t>(knob.low),
                               static_cast<int64_t>(knob.high));
        case KnobType::real:
            return fmt::format("a number{} from {} to {}", of, knob.low, knob.high);
        case KnobType::size:
            return fmt::format("a size in bytes from {} to {} (K, M, G: powers of 1024)", short_size(knob.low),
                               short_size(knob.high));
        case KnobType::choice: {
            std::string list(knob.choices);
            for (size_t at = list.rfind('|'); at != std::string::npos; at = list.rfind('|'))
                list.replace(at, 1, list.find(" or ") == std::string::npos ? " or " : ", ");
            return list;
        }
        case KnobType::text:
            break;
    }
    return "any text";
}

std::span<const Knob> knobs() {
    return kKnobs;
}

Config::Config() {
    for (const Knob &knob : kKnobs) {
        assert(valid(knob, knob.fallback));
        values_.push_back({std::string(knob.fallback), "default"});
    }
}

std::string Config::values_of(KnobScope scope) const {
    std::string text;
    for (const Knob &knob : kKnobs) {
        if (knob.scope != scope)
            continue;
        text += fmt::format("{}{}=", text.empty() ? "" : " ", knob.name);
        // Not as given: 1M and 1024K are the same.
        if (knob.type == KnobType::size)
            text += fmt::to_string(size(knob.name));
        else if (knob.type == KnobType::integer)
            text += fmt::to_string(integer(knob.name));
        else if (knob.type == KnobType::real)
            text += fmt::to_string(real(knob.name));
        else
            text += value(knob.name);
    }
    return text;
}

Status Config::from_environment(Config &config) {
    Config read;
    std::vector<Status> wrong;
    from_environment(read, wrong);
    if (!wrong.empty())
        return wrong.front();
    config = std::move(read);
    return {};
}

void Config::from_environment(Config &config, std::vector<Status> &wrong) {
    for (char **entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        if (!text.starts_with(kPrefix) || text.starts_with(kTestPrefix))
            continue;
        const auto equals = text.find('=');
        if (equals == std::string_view::npos)
            continue;
        if (Status status = config.set(text.substr(0, equals), text.substr(equals + 1), "environment"); !status.ok())
            wrong.push_back(std::move(status));
    }
}

Status Config::set(std::string_view name, std::string_view value, std::string_view origin) {
    const Knob *knob = find(name);
    if (knob == nullptr)
        return unknown(name);
    if (!valid(*knob, value)) {
        const std::string where = origin == "environment" ? "" : fmt::format(" (from {})", origin);
        return fail(Fault::knob_value, "{} is \"{}\"{}; {}", name, value, where, allowed(*knob));
    }
    values_[static_cast<size_t>(knob - kKnobs.data())] = {std::string(value), std::string(origin)};
    return {};
}

int64_t Config::integer(std::string_view name) const {
    int64_t value = 0;
    parse_integer(values_[index_of(KnobType::integer, name)].text, value);
    return value;
}

double Config::real(std::string_view name) const {
    double value = 0;
    parse_real(values_[index_of(KnobType::real, name)].text, value);
    return value;
}

size_t Config::size(std::string_view name) const {
    size_t value = 0;
    (void)parse_size(values_[index_of(KnobType::size, name)].text, value).ok();
    return value;
}

const std::string &Config::text(std::string_view name) const {
    return values_[index_of(KnobType::text, name)].text;
}

const std::string &Config::value(std::string_view name) const {
    const Knob *knob = find(name);
    assert(knob != nullptr && "no such knob");
    return values_[static_cast<size_t>(knob - kKnobs.data())].text;
}

const std::string &Config::origin(std::string_view name) const {
    const Knob *knob = find(name);
    assert(knob != nullptr && "no such knob");
    return values_[static_cast<size_t>(knob - kKnobs.data())].origin;
}

Status compare_knobs(int rank, std::string_view said, int other, std::string_view said_there) {
    if (said == said_there)
        return {};
    std::string mine;
    std::string theirs;
    while (!said.empty() || !said_there.empty()) {
        const std::string_view one = take_knob(said);
        const std::string_view there = take_knob(said_there);
        if (one == there)
            continue;
        mine += fmt::format(" {}", one);
        theirs += fmt::format(" {}", there);
    }
    return fail(Fault::knobs_differ, "rank {} has{}, rank {} has{}; these must be equal on all ranks", rank, mine,
                other, theirs);
}

Status parse_size(std::string_view text, size_t &bytes) {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const std::string_view suffix = text.substr(static_cast<size_t>(end - text.data()));
    int shift = suffix.empty() ? 0 : -1;
    if (suffix == "K" || suffix == "k")
        shift = 10;
    else if (suffix == "M" || suffix == "m")
        shift = 20;
    else if (suffix == "G" || suffix == "g")
        shift = 30;
    if (error != std::errc{} || shift < 0 || number > (std::numeric_limits<size_t>::max() >> shift))
        return fail(Fault::not_a_size, "\"{}\" is not a size; examples: 8, 1K, 64M, 2G (powers of 1024)", text);
    bytes = static_cast<size_t>(number) << shift;
    return {};
}

}  // namespace flx
