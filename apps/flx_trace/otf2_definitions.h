/// \file otf2_definitions.h
/// What the events of an archive speak of by number: regions, ranks, communicators, metrics. It is collected while
/// events are written, and itself written last.
#pragma once

#include <otf2/otf2.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "apps/traces/event.h"

namespace flx::trace {

/// What is known of a call besides its region, by number.
enum class Attribute : uint8_t { communicator, number, bytes, way, type, reduction, peer, error, unfinished, count };

/// The first error of OTF2 stays.
class Otf2Error {
  public:
    void operator()(OTF2_ErrorCode code) {
        if (code_ == OTF2_SUCCESS)
            code_ = code;
    }
    /// It is an error that there is none.
    void needs(const void *object) {
        if (object == nullptr)
            (*this)(OTF2_ERROR_MEM_FAULT);
    }
    [[nodiscard]] bool any() const { return code_ != OTF2_SUCCESS; }
    [[nodiscard]] std::string sentence() const { return OTF2_Error_GetDescription(code_); }

  private:
    OTF2_ErrorCode code_ = OTF2_SUCCESS;
};

class Definitions {
  public:
    static constexpr uint64_t kMostMembers = 1 << 24;

    explicit Definitions(Otf2Error &error) : error_(error) {}

    OTF2_StringRef text(std::string_view text);
    OTF2_RegionRef region(const std::string &name, OTF2_RegionRole role, OTF2_Paradigm paradigm);
    /// Ranks are in one communicator if id, size and `first` are equal.
    OTF2_CommRef communicator(uint64_t id, uint64_t size, const std::string &first, uint64_t rank, uint64_t world_rank);
    /// `is_sum`: bytes since the beginning; else a share.
    OTF2_MetricRef metric(const std::string &name, bool is_sum);
    void rank(uint64_t rank, const std::string &name, const std::string &host);
    /// Stack `stack` of a rank, of which `events` were written; `phases`: of calls, and no calls.
    void location(uint64_t rank, uint64_t stack, uint64_t events, bool phases);
    [[nodiscard]] static OTF2_LocationRef location_of(uint64_t rank, uint64_t stack) { return stack << 32U | rank; }

    /// Of all locations, for the parts of the archive that each has; also ranks that only their communicators name.
    [[nodiscard]] std::vector<OTF2_LocationRef> locations() const;
    void write(OTF2_GlobalDefWriter *writer, const traces::Header &header, uint64_t last_ns);

  private:
    struct Region {
        std::string name;
        OTF2_RegionRole role;
        OTF2_Paradigm paradigm;
    };
    struct Group {
        uint64_t id = 0;
        std::vector<uint64_t> members;  ///< ranks in the world; kUnknown: there is no trace of it
    };
    struct Rank {
        std::string name;
        std::string host;
        struct Stack {
            uint64_t events = 0;
            bool phases = false;
        };
        std::vector<Stack> stacks;
    };
    static constexpr uint64_t kUnknown = UINT64_MAX;

    void write_ranks(const traces::Header &header);
    void write_communicators();
    void write_metrics();
    /// As many as one communicator lacks at most.
    [[nodiscard]] uint64_t unknown_ranks() const;

    Otf2Error &error_;
    OTF2_GlobalDefWriter *writer_ = nullptr;  ///< null until write(), from when on texts are written before their use
    std::map<std::string, OTF2_StringRef, std::less<>> text_by_itself_;
    std::vector<std::string> texts_;
    std::map<std::string, OTF2_RegionRef> region_by_name_;
    std::vector<Region> regions_;
    std::map<std::tuple<uint64_t, uint64_t, std::string>, OTF2_CommRef> group_by_key_;
    std::vector<Group> groups_;
    std::map<std::string, OTF2_MetricRef> metric_by_name_;
    std::vector<std::pair<std::string, bool>> metrics_;
    std::map<uint64_t, Rank> ranks_;
};

}  // namespace flx::trace
