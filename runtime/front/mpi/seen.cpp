#include "runtime/front/mpi/seen.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/text.h"
#include "runtime/front/mpi/communicators.h"
#include "runtime/front/mpi/libraries/flx_library.h"

extern "C" __attribute__((visibility("default"))) flx::record::Handover *flx_mpi_record_7() {
    return &flx::preload::passed_calls().handover();
}

namespace flx::preload {
namespace {

constexpr std::array kAs = {algorithms::Collective::allgather,      algorithms::Collective::allgatherv,
                            algorithms::Collective::allreduce,      algorithms::Collective::alltoall,
                            algorithms::Collective::alltoallv,      algorithms::Collective::alltoallv,
                            algorithms::Collective::barrier,        algorithms::Collective::bcast,
                            algorithms::Collective::exscan,         algorithms::Collective::gather,
                            algorithms::Collective::gatherv,        algorithms::Collective::reduce,
                            algorithms::Collective::reduce_scatter, algorithms::Collective::reduce_scatter_block,
                            algorithms::Collective::scan,           algorithms::Collective::scatter,
                            algorithms::Collective::scatterv};
static_assert(kAs.size() == kCollectives.size());

/// FNV-1a, as D. Eastlake and others describe it in "The FNV Non-Cryptographic Hash Algorithm".
class Hash {
  public:
    void add(const void *bytes, size_t count) {
        for (size_t i = 0; i < count; ++i)
            value_ = (value_ ^ static_cast<const unsigned char *>(bytes)[i]) * 0x100000001B3U;
    }
    [[nodiscard]] uint64_t value() const { return value_; }

  private:
    uint64_t value_ = 0xCBF29CE484222325U;
};

/// Counts for each number from 0 on. `what`: counted for itself.
enum class Counted : uint8_t { made, first_called };
uint32_t count(Counted what, uint64_t number) {
    static std::mutex mutex;
    static auto &times = *new std::map<std::pair<Counted, uint64_t>, uint32_t>;
    const std::lock_guard guard(mutex);
    return times[{what, number}]++;
}

uint64_t hash_of(const std::vector<int> &members) {
    Hash hash;
    hash.add(members.data(), members.size() * sizeof(int));
    return hash.value();
}

/// Whether the launcher has all ranks on this host. 0: it does not say so.
int hosts_of_world() {
    int size = 0;
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    for (const char *name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"})
        if (const char *value = std::getenv(name); value != nullptr && std::atoi(value) == size)
            return 1;
    return 0;
}

}  // namespace

record::PassedCalls &passed_calls() {
    static auto *const calls = new record::PassedCalls;
    return *calls;
}

void begin_to_be_seen(const Config &config, uint32_t job, bool threads) {
    std::string host = config.text("FLX_HOST_ID");
    if (host.empty())
        host = host_name();
    // Where nothing can be recorded, libflx says why when it comes to it.
    (void)passed_calls().begin(
        {config.text("FLX_RECORD") == "on", config.text("FLX_TRACE"), host, fmt::format("{:08x}", job), threads});
    std::atexit([] { passed_calls().end(); });
    if (!config.text("FLX_TRACE").empty())
        (void)flx_comm_create.get();  // the part of a trace is libflx's to write
}

void open_seen(SeenComm &seen, MPI_Comm comm, int rank, int size, const std::vector<int> &members) {
    seen.opened = true;
    int inter = 0;
    if (size == 1 && PMPI_Comm_test_inter(comm, &inter) == MPI_SUCCESS && inter == 0)
        return;
    record::CommunicatorFacts facts;
    facts.rank = rank;
    facts.size = members.empty() ? 0 : size;
    static const int hosts = hosts_of_world();
    facts.hosts = hosts;
    const record::File *const file = passed_calls().handover().file;
    if (file == nullptr)
        return;
    Hash hash;
    hash.add(file->job.data(), std::string_view(file->job.data()).size());
    if (members.empty()) {
        hash.add(&file->pid, sizeof file->pid);
        hash.add(&file->pid_namespace, sizeof file->pid_namespace);
    }
    hash.add(members.data(), members.size() * sizeof(int));
    // Where it is not known in which order MPI made them, it is that of first calls, mostly one on all ranks.
    constexpr uint32_t kCalled = 1U << 31;
    const uint32_t which = seen.made != 0 ? seen.made : kCalled | count(Counted::first_called, hash.value());
    hash.add(&which, sizeof which);
    facts.first_uid = hash.value();
    constexpr uint32_t kNames = 1'000'000;  // short ones; which is which, `first_uid` tells
    facts.id = record::kMpiIds + (comm == MPI_COMM_WORLD ? 0 : 1 + static_cast<uint32_t>(hash.value() % (kNames - 1)));
    seen.place = passed_calls().open(facts);
}

void note_made(SeenComm &seen, const std::vector<int> &members) {
    if (passed_calls().handover().threads)
        return;
    seen.made = 1 + count(Counted::made, hash_of(members));
}

CallRecord Said::record() const {
    CallRecord record;
    record.collective = kAs[static_cast<size_t>(collective)];
    record.kind = form == Form::blocking ? CallKind::blocking : CallKind::non_blocking;
    record.bytes = bytes == kBytesUnknown ? 0 : bytes;
    record.root = root;
    record.dtype = CallRecord::kUntold;
    record.op = CallRecord::kUntold;
    const uint64_t what = static_cast<uint64_t>(collective) << 32U | static_cast<uint32_t>(root);
    const uint64_t mixed = (what * 0x9E3779B97F4A7C15U) ^ (bytes * 0xC2B2AE3D27D4EB4FU);
    record.signature = static_cast<uint32_t>(mixed >> 32U) ^ static_cast<uint32_t>(mixed);
    return record;
}

void Seen::enter(MPI_Comm comm, const Said &said) {
    SeenComm *const seen = Library::instance().seen(comm);
    if (seen == nullptr || seen->place == record::kNowhere)
        return;
    comm_ = seen;
    stamp_ = passed_calls().enter(seen->place, said.record(), ++seen->calls);
}

void Seen::takes_back() const {
    if (stamp_ != 0)
        passed_calls().take_back(stamp_, comm_->place, --comm_->calls);
}

}  // namespace flx::preload
