#include "apps/flx_trace/otf2_definitions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/record/reader.h"

namespace flx::trace {
namespace {

constexpr uint64_t kNsPerSecond = 1'000'000'000;
constexpr OTF2_GroupRef kAllRanks = 0;
constexpr OTF2_SystemTreeNodeRef kMachine = 0;
/// Locations of ranks of which there is no trace; those of others have their stack there.
constexpr uint64_t kUnknownStack = 0xFFFFFFFF;

struct AttributeText {
    const char *name;
    const char *says;
    OTF2_Type type;
};
constexpr std::array<AttributeText, static_cast<size_t>(Attribute::count)> kAttributes = {{
    {"communicator", "its number", OTF2_TYPE_UINT64},
    {"number", "of the call on its communicator", OTF2_TYPE_UINT64},
    {"bytes", "of the whole vector", OTF2_TYPE_UINT64},
    {"way", "how FLX carried the call out, or that MPI did", OTF2_TYPE_STRING},
    {"type", "of the elements", OTF2_TYPE_STRING},
    {"reduction", "of the elements", OTF2_TYPE_STRING},
    {"peer", "the rank in the communicator", OTF2_TYPE_INT64},
    {"error", "with which the call ended", OTF2_TYPE_STRING},
    {"unfinished", "1: the rank ended within the call", OTF2_TYPE_UINT64},
}};

}  // namespace

OTF2_StringRef Definitions::text(std::string_view text) {
    if (const auto found = text_by_itself_.find(text); found != text_by_itself_.end())
        return found->second;
    const auto number = static_cast<OTF2_StringRef>(texts_.size());
    text_by_itself_.emplace(text, number);
    texts_.emplace_back(text);
    if (writer_ != nullptr)
        error_(OTF2_GlobalDefWriter_WriteString(writer_, number, texts_.back().c_str()));
    return number;
}

OTF2_RegionRef Definitions::region(const std::string &name, OTF2_RegionRole role, OTF2_Paradigm paradigm) {
    const auto [place, is_new] = region_by_name_.try_emplace(name, static_cast<OTF2_RegionRef>(regions_.size()));
    if (is_new)
        regions_.push_back({name, role, paradigm});
    return place->second;
}

OTF2_CommRef Definitions::communicator(uint64_t id, uint64_t size, const std::string &first, uint64_t rank,
                                       uint64_t world_rank) {
    const auto [place, is_new] =
        group_by_key_.try_emplace({id, size, first}, static_cast<OTF2_CommRef>(groups_.size()));
    if (is_new)
        groups_.push_back({id, std::vector<uint64_t>(size, kUnknown)});
    groups_[place->second].members[rank] = world_rank;
    ranks_.try_emplace(world_rank);
    return place->second;
}

OTF2_MetricRef Definitions::metric(const std::string &name, bool is_sum) {
    const auto [place, is_new] = metric_by_name_.try_emplace(name, static_cast<OTF2_MetricRef>(metrics_.size()));
    if (is_new)
        metrics_.emplace_back(name, is_sum);
    return place->second;
}

void Definitions::rank(uint64_t rank, const std::string &name, const std::string &host) {
    ranks_[rank].name = name;
    ranks_[rank].host = host;
}

void Definitions::location(uint64_t rank, uint64_t stack, uint64_t events, bool phases) {
    std::vector<Rank::Stack> &all = ranks_[rank].stacks;
    all.resize(std::max<size_t>(all.size(), stack + 1));
    all[stack] = {events, phases};
}

uint64_t Definitions::unknown_ranks() const {
    uint64_t most = 0;
    for (const Group &group : groups_)
        most = std::max(most, static_cast<uint64_t>(std::count(group.members.begin(), group.members.end(), kUnknown)));
    return most;
}

std::vector<OTF2_LocationRef> Definitions::locations() const {
    std::vector<OTF2_LocationRef> all;
    for (const auto &[number, rank] : ranks_)
        for (uint64_t stack = 0; stack < std::max<size_t>(rank.stacks.size(), 1); ++stack)
            all.push_back(location_of(number, stack));
    for (uint64_t i = 0; i < unknown_ranks(); ++i)
        all.push_back(location_of(i, kUnknownStack));
    return all;
}

void Definitions::write(OTF2_GlobalDefWriter *writer, const traces::Header &header, uint64_t last_ns) {
    writer_ = writer;
    for (size_t i = 0; i < texts_.size(); ++i)
        error_(OTF2_GlobalDefWriter_WriteString(writer_, static_cast<OTF2_StringRef>(i), texts_[i].c_str()));
    const uint64_t began_ns =
        header.began_s > 0 ? static_cast<uint64_t>(std::llround(header.began_s * 1e9)) : OTF2_UNDEFINED_TIMESTAMP;
    error_(OTF2_GlobalDefWriter_WriteClockProperties(writer_, kNsPerSecond, 0, last_ns, began_ns));
    error_(OTF2_GlobalDefWriter_WriteParadigm(writer_, OTF2_PARADIGM_MPI, text("MPI"), OTF2_PARADIGM_CLASS_PROCESS));
    for (size_t i = 0; i < kAttributes.size(); ++i)
        error_(OTF2_GlobalDefWriter_WriteAttribute(writer_, static_cast<OTF2_AttributeRef>(i),
                                                   text(kAttributes[i].name), text(kAttributes[i].says),
                                                   kAttributes[i].type));
    for (size_t i = 0; i < regions_.size(); ++i) {
        const OTF2_StringRef name = text(regions_[i].name);
        error_(OTF2_GlobalDefWriter_WriteRegion(writer_, static_cast<OTF2_RegionRef>(i), name, name, text(""),
                                                regions_[i].role, regions_[i].paradigm, OTF2_REGION_FLAG_NONE,
                                                text("FLX"), 0, 0));
    }
    write_ranks(header);
    write_communicators();
    write_metrics();
}

void Definitions::write_ranks(const traces::Header &header) {
    error_(OTF2_GlobalDefWriter_WriteSystemTreeNode(writer_, kMachine,
                                                    text(header.command.empty() ? "FLX" : header.command),
                                                    text("machine"), OTF2_UNDEFINED_SYSTEM_TREE_NODE));
    std::map<std::string, OTF2_SystemTreeNodeRef> hosts;
    for (const auto &[number, rank] : ranks_) {
        const auto node = static_cast<OTF2_SystemTreeNodeRef>(hosts.size() + 1);
        if (!hosts.try_emplace(rank.host, node).second)
            continue;
        error_(OTF2_GlobalDefWriter_WriteSystemTreeNode(writer_, node, text(rank.host), text("node"), kMachine));
        error_(OTF2_GlobalDefWriter_WriteSystemTreeNodeDomain(writer_, node, OTF2_SYSTEM_TREE_DOMAIN_SHARED_MEMORY));
    }
    for (const traces::TraceClock &clock : header.clocks) {
        const auto host = hosts.find(clock.host);
        if (host == hosts.end())
            continue;
        const auto tell = [&](const char *name, double value) {
            OTF2_AttributeValue said;
            said.float64 = value;
            error_(OTF2_GlobalDefWriter_WriteSystemTreeNodeProperty(writer_, host->second, text(name), OTF2_TYPE_DOUBLE,
                                                                    said));
        };
        tell("FLX::clock::offset_us", clock.offset_us);
        tell("FLX::clock::drift_ppm", clock.drift_ppm);
        if (clock.error_us >= 0)
            tell("FLX::clock::error_us", clock.error_us);
    }
    OTF2_LocationGroupRef group = 0;
    const auto group_of = [&](const std::string &name, OTF2_SystemTreeNodeRef node) {
        error_(OTF2_GlobalDefWriter_WriteLocationGroup(writer_, group, text(name), OTF2_LOCATION_GROUP_TYPE_PROCESS,
                                                       node, OTF2_UNDEFINED_LOCATION_GROUP));
    };
    for (const auto &[number, rank] : ranks_) {
        group_of(rank.name, hosts.at(rank.host));
        for (uint64_t stack = 0; stack < std::max<size_t>(rank.stacks.size(), 1); ++stack) {
            const Rank::Stack is = stack < rank.stacks.size() ? rank.stacks[stack] : Rank::Stack{};
            const char *what = is.phases ? ", phases" : stack == 0 ? "" : ", calls beside";
            error_(OTF2_GlobalDefWriter_WriteLocation(writer_, location_of(number, stack),
                                                      text(fmt::format("rank {}{}", number, what)),
                                                      OTF2_LOCATION_TYPE_CPU_THREAD, is.events, group));
        }
        ++group;
    }
    for (uint64_t i = 0; i < unknown_ranks(); ++i, ++group) {
        group_of("a rank without a trace", kMachine);
        error_(OTF2_GlobalDefWriter_WriteLocation(writer_, location_of(i, kUnknownStack),
                                                  text("a rank without a trace"), OTF2_LOCATION_TYPE_CPU_THREAD, 0,
                                                  group));
    }
}

/// Groups of communicators name ranks by their places in one group that has all.
void Definitions::write_communicators() {
    std::vector<uint64_t> all;
    std::map<uint64_t, uint64_t> place_of;
    for (const auto &[number, rank] : ranks_) {
        place_of[number] = all.size();
        all.push_back(location_of(number, 0));
    }
    const uint64_t known = all.size();
    for (uint64_t i = 0; i < unknown_ranks(); ++i)
        all.push_back(location_of(i, kUnknownStack));
    error_(OTF2_GlobalDefWriter_WriteGroup(writer_, kAllRanks, text(""), OTF2_GROUP_TYPE_COMM_LOCATIONS,
                                           OTF2_PARADIGM_MPI, OTF2_GROUP_FLAG_NONE, static_cast<uint32_t>(all.size()),
                                           all.data()));
    for (size_t i = 0; i < groups_.size(); ++i) {
        std::vector<uint64_t> members;
        uint64_t unknown = known;
        for (const uint64_t rank : groups_[i].members)
            members.push_back(rank == kUnknown ? unknown++ : place_of.at(rank));
        const auto group = static_cast<OTF2_GroupRef>(kAllRanks + 1 + i);
        const OTF2_StringRef name = text(record::name_of_communicator(static_cast<uint32_t>(groups_[i].id)));
        error_(OTF2_GlobalDefWriter_WriteGroup(writer_, group, text(""), OTF2_GROUP_TYPE_COMM_GROUP, OTF2_PARADIGM_MPI,
                                               OTF2_GROUP_FLAG_NONE, static_cast<uint32_t>(members.size()),
                                               members.data()));
        error_(OTF2_GlobalDefWriter_WriteComm(writer_, static_cast<OTF2_CommRef>(i), name, group, OTF2_UNDEFINED_COMM,
                                              OTF2_COMM_FLAG_NONE));
    }
}

void Definitions::write_metrics() {
    for (size_t i = 0; i < metrics_.size(); ++i) {
        const auto &[name, is_sum] = metrics_[i];
        const auto member = static_cast<OTF2_MetricMemberRef>(i);
        error_(OTF2_GlobalDefWriter_WriteMetricMember(
            writer_, member, text(name),
            text(is_sum ? "payload that the link carried so far" : "of the data, by the last partition vector"),
            OTF2_METRIC_TYPE_OTHER, is_sum ? OTF2_METRIC_ACCUMULATED_START : OTF2_METRIC_ABSOLUTE_NEXT,
            is_sum ? OTF2_TYPE_UINT64 : OTF2_TYPE_DOUBLE, OTF2_BASE_DECIMAL, 0, text(is_sum ? "B" : "of 1")));
        error_(OTF2_GlobalDefWriter_WriteMetricClass(writer_, static_cast<OTF2_MetricRef>(i), 1, &member,
                                                     OTF2_METRIC_ASYNCHRONOUS, OTF2_RECORDER_KIND_CPU));
    }
}

}  // namespace flx::trace
