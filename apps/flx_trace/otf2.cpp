#include "apps/flx_trace/otf2.h"

#include <fmt/format.h>
#include <otf2/otf2.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdarg>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>

#include "apps/flx_trace/otf2_definitions.h"
#include "apps/flx_trace/timeline.h"
#include "apps/flx_trace/volumes.h"
#include "apps/traces/process_name.h"
#include "apps/traces/reader.h"

namespace flx::trace {
namespace {

using algorithms::Collective;
using traces::Event;

constexpr uint64_t kMostRanks = 1 << 24;

/// What records of collectives call it, and what regions are. By algorithms::Collective.
struct CollectiveKind {
    OTF2_CollectiveOp operation;
    OTF2_RegionRole role;
};
constexpr std::array<CollectiveKind, algorithms::kCollectives> kKinds = {{
    {OTF2_COLLECTIVE_OP_ALLREDUCE, OTF2_REGION_ROLE_COLL_ALL2ALL},
    {OTF2_COLLECTIVE_OP_REDUCE_SCATTER_BLOCK, OTF2_REGION_ROLE_COLL_ALL2ALL},
    {OTF2_COLLECTIVE_OP_ALLGATHER, OTF2_REGION_ROLE_COLL_ALL2ALL},
    {OTF2_COLLECTIVE_OP_BCAST, OTF2_REGION_ROLE_COLL_ONE2ALL},
    {OTF2_COLLECTIVE_OP_REDUCE, OTF2_REGION_ROLE_COLL_ALL2ONE},
    {OTF2_COLLECTIVE_OP_BARRIER, OTF2_REGION_ROLE_BARRIER},
    {OTF2_COLLECTIVE_OP_GATHER, OTF2_REGION_ROLE_COLL_ALL2ONE},
    {OTF2_COLLECTIVE_OP_SCATTER, OTF2_REGION_ROLE_COLL_ONE2ALL},
    {OTF2_COLLECTIVE_OP_SCAN, OTF2_REGION_ROLE_COLL_OTHER},
    {OTF2_COLLECTIVE_OP_EXSCAN, OTF2_REGION_ROLE_COLL_OTHER},
    {OTF2_COLLECTIVE_OP_ALLTOALL, OTF2_REGION_ROLE_COLL_ALL2ALL},
    {OTF2_COLLECTIVE_OP_ALLTOALLV, OTF2_REGION_ROLE_COLL_ALL2ALL},
    // A rank exchanges with two others, each pair with lengths of its own: nearest to that is what MPI calls so.
    {OTF2_COLLECTIVE_OP_ALLTOALLV, OTF2_REGION_ROLE_POINT2POINT},
    {OTF2_COLLECTIVE_OP_GATHERV, OTF2_REGION_ROLE_COLL_ALL2ONE},
    {OTF2_COLLECTIVE_OP_SCATTERV, OTF2_REGION_ROLE_COLL_ONE2ALL},
    {OTF2_COLLECTIVE_OP_ALLGATHERV, OTF2_REGION_ROLE_COLL_ALL2ALL},
    {OTF2_COLLECTIVE_OP_REDUCE_SCATTER, OTF2_REGION_ROLE_COLL_ALL2ALL},
}};

uint64_t whole(double value) {
    constexpr double kMost = 9e15;
    return value > 0 ? static_cast<uint64_t>(std::llround(std::min(value, kMost))) : 0;
}

int64_t ns_of(double us) {
    return static_cast<int64_t>(whole(us * 1e3));
}

/// A communicator as one of its ranks has it.
struct Membership {
    OTF2_CommRef communicator = OTF2_UNDEFINED_COMM;
    int64_t rank = 0;
    int64_t size = 0;
};

/// What records say of a span.
struct Detail {
    OTF2_RegionRef region = OTF2_UNDEFINED_REGION;
    OTF2_CommRef communicator = OTF2_UNDEFINED_COMM;  ///< undefined: there are no records of a collective
    OTF2_CollectiveOp operation = OTF2_COLLECTIVE_OP_BARRIER;
    uint32_t root = OTF2_COLLECTIVE_ROOT_NONE;
    Volumes volumes;
    struct Said {
        Attribute attribute;
        uint64_t value;  ///< a text's number, where it is one
    };
    std::array<Said, static_cast<size_t>(Attribute::count)> said{};
    uint8_t said_count = 0;
};

/// What happens at one time, whatever call the rank is in.
struct Point {
    enum class Kind : uint8_t { request, completion, sum, share };
    int64_t at_ns = 0;
    Kind kind = Kind::request;
    size_t index = 0;  ///< of a detail, or the metric
    uint64_t id = 0;   ///< of a request
    double value = 0;
};

/// The events of one rank, until they are written.
struct RankEvents {
    std::vector<Detail> details;
    std::vector<Span> spans;
    std::vector<Point> points;
    std::vector<Span> phases;
    std::unordered_map<std::string, Span> begun_phases;  ///< of calls that do not block
    std::unordered_map<std::string, size_t> requests;    ///< that are not complete: their details
    std::map<OTF2_MetricRef, uint64_t> sums;
};

bool is_text(Attribute attribute) {
    return attribute == Attribute::way || attribute == Attribute::type || attribute == Attribute::reduction ||
           attribute == Attribute::error;
}

/// Writes events into the archive's part of a location.
class LocationWriter {
  public:
    LocationWriter(OTF2_EvtWriter *writer, OTF2_AttributeList *attributes, const RankEvents &events, Otf2Error &error)
        : writer_(writer), attributes_(attributes), events_(events), error_(error) {}

    void turn(const Turn &turn) {
        const Detail &detail = events_.details[turn.index];
        const auto at = static_cast<OTF2_TimeStamp>(turn.at_ns);
        const bool is_collective = detail.communicator != OTF2_UNDEFINED_COMM;
        if (turn.leaves) {
            if (is_collective)
                error_(OTF2_EvtWriter_MpiCollectiveEnd(writer_, nullptr, at, detail.operation, detail.communicator,
                                                       detail.root, detail.volumes.given, detail.volumes.taken));
            error_(OTF2_EvtWriter_Leave(writer_, nullptr, at, detail.region));
            return;
        }
        enter(detail, at);
        if (is_collective)
            error_(OTF2_EvtWriter_MpiCollectiveBegin(writer_, nullptr, at));
    }

    void point(const Point &point) {
        const auto at = static_cast<OTF2_TimeStamp>(point.at_ns);
        switch (point.kind) {
            case Point::Kind::request: {
                const Detail &detail = events_.details[point.index];
                enter(detail, at);
                error_(OTF2_EvtWriter_NonBlockingCollectiveRequest(writer_, nullptr, at, point.id));
                error_(OTF2_EvtWriter_Leave(writer_, nullptr, at, detail.region));
                return;
            }
            case Point::Kind::completion: {
                const Detail &detail = events_.details[point.index];
                error_(OTF2_EvtWriter_NonBlockingCollectiveComplete(
                    writer_, nullptr, at, detail.operation, detail.communicator, detail.root, detail.volumes.given,
                    detail.volumes.taken, point.id));
                return;
            }
            case Point::Kind::sum:
            case Point::Kind::share: {
                const bool is_sum = point.kind == Point::Kind::sum;
                const OTF2_Type type = is_sum ? OTF2_TYPE_UINT64 : OTF2_TYPE_DOUBLE;
                OTF2_MetricValue value;
                if (is_sum)
                    value.unsigned_int = point.id;
                else
                    value.floating_point = point.value;
                error_(OTF2_EvtWriter_Metric(writer_, nullptr, at, static_cast<OTF2_MetricRef>(point.index), 1, &type,
                                             &value));
                return;
            }
        }
    }

  private:
    void enter(const Detail &detail, OTF2_TimeStamp at) {
        error_(OTF2_AttributeList_RemoveAllAttributes(attributes_));
        for (size_t i = 0; i < detail.said_count; ++i) {
            const auto [attribute, value] = detail.said[i];
            const auto number = static_cast<OTF2_AttributeRef>(attribute);
            if (is_text(attribute))
                error_(OTF2_AttributeList_AddStringRef(attributes_, number, static_cast<OTF2_StringRef>(value)));
            else if (attribute == Attribute::peer)
                error_(OTF2_AttributeList_AddInt64(attributes_, number, static_cast<int64_t>(value)));
            else
                error_(OTF2_AttributeList_AddUint64(attributes_, number, value));
        }
        error_(OTF2_EvtWriter_Enter(writer_, attributes_, at, detail.region));
    }

    OTF2_EvtWriter *writer_;
    OTF2_AttributeList *attributes_;
    const RankEvents &events_;
    Otf2Error &error_;
};

OTF2_FlushType flush(void * /*data*/, OTF2_FileType /*type*/, OTF2_LocationRef /*location*/, void * /*caller*/,
                     bool /*final*/) {
    return OTF2_FLUSH;
}
constexpr OTF2_FlushCallbacks kFlush = {flush, nullptr};

/// Nothing is printed: whoever called says what the error was.
OTF2_ErrorCode keep_silent(void * /*data*/, const char * /*file*/, uint64_t /*line*/, const char * /*function*/,
                           OTF2_ErrorCode code, const char * /*format*/, va_list /*arguments*/) {
    return code;
}

/// Takes events as they are read. What a rank did is written when the next rank's events begin.
class Converter {
  public:
    Converter(OTF2_Archive *archive, ArchiveMade &made, Otf2Error &error)
        : archive_(archive), attributes_(OTF2_AttributeList_New()), made_(made), error_(error), definitions_(error) {
        error_.needs(attributes_);
    }
    ~Converter() { OTF2_AttributeList_Delete(attributes_); }
    Converter(const Converter &) = delete;
    Converter &operator=(const Converter &) = delete;

    /// False: `why` says what is wrong with the event.
    bool take(const Event &event, std::string &why) {
        if (event.pid < 0 || static_cast<uint64_t>(event.pid) >= kMostRanks) {
            why = fmt::format("its \"pid\" is {}, which is no rank", event.pid);
            return false;
        }
        if (event.phase == 'M') {
            introduce(event);
            return true;
        }
        if (event.pid != rank_) {
            write_rank();
            rank_ = event.pid;
            if (!written_.insert(rank_).second) {
                why = fmt::format("the events of rank {} do not stand together", rank_);
                return false;
            }
        }
        last_ns_ = std::max(last_ns_, ns_of(event.at_us + event.for_us));
        if (event.category == "phase")
            phase(event);
        else if (event.phase == 'X' && event.category == "link")
            carry(event);
        else if (event.phase == 'X')
            span(event);
        else if (event.phase == 'b')
            request(event);
        else if (event.phase == 'e')
            complete(event);
        else if (event.phase == 'C')
            share(event);
        else if (event.phase == 'i')
            marks_.push_back({ns_of(event.at_us), static_cast<uint64_t>(rank_), event.name});
        return true;
    }

    void finish(const traces::Header &header) {
        write_rank();
        made_.ranks = names_;
        const std::vector<OTF2_LocationRef> locations = definitions_.locations();
        // Readers want a file of each location, also of one without events.
        for (const OTF2_LocationRef location : locations)
            if (!error_.any() && !has_events_.contains(location))
                write_location(location, [](LocationWriter & /*to*/) {});
        error_(OTF2_Archive_CloseEvtFiles(archive_));
        error_(OTF2_Archive_OpenDefFiles(archive_));
        for (const OTF2_LocationRef location : locations) {
            OTF2_DefWriter *writer = OTF2_Archive_GetDefWriter(archive_, location);
            error_.needs(writer);
            if (error_.any())
                return;
            error_(OTF2_Archive_CloseDefWriter(archive_, writer));
        }
        error_(OTF2_Archive_CloseDefFiles(archive_));
        OTF2_GlobalDefWriter *writer = OTF2_Archive_GetGlobalDefWriter(archive_);
        error_.needs(writer);
        if (error_.any())
            return;
        definitions_.write(writer, header, static_cast<uint64_t>(last_ns_) + 1);
        error_(OTF2_Archive_CloseGlobalDefWriter(archive_, writer));
        write_marks();
    }

  private:
    struct Mark {
        int64_t at_ns;
        uint64_t rank;
        std::string text;
    };

    void introduce(const Event &event) {
        const auto rank = static_cast<uint64_t>(event.pid);
        if (event.name == "process_name") {
            definitions_.rank(rank, std::string(event.text("name")), traces::process_name_of(event.text("name")).host);
            ++names_;
        } else if (event.name == "communicator") {
            const Membership member{0, static_cast<int64_t>(whole(event.number("rank", 0))),
                                    static_cast<int64_t>(whole(event.number("size", 0)))};
            if (member.rank >= member.size || static_cast<uint64_t>(member.size) > Definitions::kMostMembers)
                return;
            Membership &known = memberships_[{rank, event.tid}];
            known = member;
            known.communicator = definitions_.communicator(
                whole(event.number("communicator", 0)), static_cast<uint64_t>(member.size),
                std::string(event.text("first_uid")), static_cast<uint64_t>(member.rank), rank);
        }
    }

    static bool by_mpi(const Event &event) { return event.text("way") == "served by MPI"; }

    /// A call; its detail's number.
    size_t call(const Event &event) {
        const bool blocks = event.phase == 'X';
        const std::optional<Collective> collective = collective_named(event.name);
        const bool is_free = event.name == "flx_comm_free";
        Detail detail;
        const auto member = memberships_.find({static_cast<uint64_t>(event.pid), event.tid});
        const bool unfinished = event.number("unfinished", 0) != 0;
        if (member != memberships_.end() && !unfinished && (collective || is_free)) {
            detail.communicator = member->second.communicator;
            const auto root = static_cast<int64_t>(event.number("root", -1));
            if (root >= 0)
                detail.root = static_cast<uint32_t>(root);
            if (collective)
                detail.volumes = volumes_of(*collective, whole(event.number("bytes", 0)), member->second.size,
                                            member->second.rank, root);
        }
        OTF2_RegionRole role = OTF2_REGION_ROLE_POINT2POINT;  // messages
        if (collective) {
            const CollectiveKind &kind = kKinds[algorithms::index_of(*collective)];
            detail.operation = kind.operation;
            role = kind.role;
        } else if (is_free) {
            detail.operation = OTF2_COLLECTIVE_OP_DESTROY_HANDLE;
            role = OTF2_REGION_ROLE_COLL_OTHER;
        }
        detail.region = definitions_.region(
            collective ? fmt::format("{}_{}{}", by_mpi(event) ? "mpi" : "flx", blocks ? "" : "i", event.name)
                       : event.name,
            role, OTF2_PARADIGM_MPI);
        describe(event, detail);
        events_.details.push_back(detail);
        ++made_.calls;
        return events_.details.size() - 1;
    }

    void describe(const Event &event, Detail &detail) {
        const auto say = [&](Attribute attribute, uint64_t value) {
            detail.said[detail.said_count++] = {attribute, value};
        };
        const auto say_number = [&](Attribute attribute, const char *name) {
            if (const traces::Argument *argument = event.find(name); argument != nullptr && !argument->is_text)
                say(attribute, attribute == Attribute::peer ? static_cast<uint64_t>(std::llround(argument->number))
                                                            : whole(argument->number));
        };
        const auto say_text = [&](Attribute attribute, const char *name) {
            if (const std::string_view text = event.text(name); !text.empty())
                say(attribute, definitions_.text(text));
        };
        say_number(Attribute::communicator, "communicator");
        say_number(Attribute::number, "number");
        say_number(Attribute::bytes, "bytes");
        say_text(Attribute::way, "way");
        say_text(Attribute::type, "type");
        say_text(Attribute::reduction, "reduction");
        say_number(Attribute::peer, "peer");
        say_text(Attribute::error, "error");
        say_number(Attribute::unfinished, "unfinished");
    }

    void span(const Event &event) {
        const int64_t begin = ns_of(event.at_us);
        const int64_t end = std::max(begin, ns_of(event.at_us + event.for_us));
        const bool is_call = event.category == "call" || event.category == "gpu";
        size_t index = events_.details.size();
        if (is_call) {
            index = call(event);
        } else {
            Detail &detail = events_.details.emplace_back();
            detail.region = definitions_.region(event.category == "wait" ? "waits for a rank" : event.name,
                                                OTF2_REGION_ROLE_CODE, OTF2_PARADIGM_USER);
            describe(event, detail);
        }
        events_.spans.push_back({begin, end, event.tid, !is_call, index});
    }

    /// They overlap waits, and those of other calls that do not block, which functions of one thread do not: they have
    /// stacks of their own.
    void phase(const Event &event) {
        const std::string id = event.name + " " + event.id;
        if (event.phase == 'e') {
            if (const auto found = events_.begun_phases.find(id); found != events_.begun_phases.end()) {
                found->second.end_ns = std::max(found->second.begin_ns, ns_of(event.at_us));
                events_.phases.push_back(found->second);
                events_.begun_phases.erase(found);
            }
            return;
        }
        const int64_t begin = ns_of(event.at_us);
        constexpr int64_t kRow = int64_t{1} << 31;
        const auto of_call = static_cast<int64_t>(whole(event.number("number", 0)) % kRow);
        const Span span{begin, std::max(begin, ns_of(event.at_us + event.for_us)), event.tid % kRow * kRow + of_call,
                        false, events_.details.size()};
        Detail &detail = events_.details.emplace_back();
        detail.region = definitions_.region(event.name, OTF2_REGION_ROLE_CODE, OTF2_PARADIGM_USER);
        describe(event, detail);
        if (event.phase == 'X')
            events_.phases.push_back(span);
        else if (event.phase == 'b')
            events_.begun_phases[id] = span;
    }

    void request(const Event &event) {
        const size_t index = call(event);
        events_.requests[event.id] = index;
        events_.points.push_back({ns_of(event.at_us), Point::Kind::request, index, index, 0});
    }

    void complete(const Event &event) {
        const auto found = events_.requests.find(event.id);
        if (found == events_.requests.end())
            return;
        const size_t index = found->second;
        events_.requests.erase(found);
        if (events_.details[index].communicator != OTF2_UNDEFINED_COMM)
            events_.points.push_back({ns_of(event.at_us), Point::Kind::completion, index, index, 0});
    }

    /// What a link has carried grows over the time of the event, and not between two events.
    void carry(const Event &event) {
        const OTF2_MetricRef metric = definitions_.metric(
            fmt::format("{}: bytes of communicator {}", event.text("link"), event.number("communicator", 0)), true);
        uint64_t &sum = events_.sums[metric];
        const int64_t begin = ns_of(event.at_us);
        events_.points.push_back({begin, Point::Kind::sum, metric, sum, 0});
        sum += whole(event.number("bytes", 0));
        events_.points.push_back(
            {std::max(begin, ns_of(event.at_us + event.for_us)), Point::Kind::sum, metric, sum, 0});
    }

    void share(const Event &event) {
        for (size_t i = 0; i < event.argument_count; ++i) {
            const traces::Argument &argument = event.arguments[i];
            if (!argument.is_text)
                events_.points.push_back({ns_of(event.at_us), Point::Kind::share,
                                          definitions_.metric(fmt::format("{}: {}", argument.name, event.name), false),
                                          0, argument.number});
        }
    }

    void write_rank() {
        if (rank_ < 0 || error_.any())
            return;
        const auto rank = static_cast<uint64_t>(rank_);
        std::stable_sort(events_.points.begin(), events_.points.end(),
                         [](const Point &a, const Point &b) { return a.at_ns < b.at_ns; });
        std::vector<std::vector<Turn>> stacks = stacks_of(std::move(events_.spans));
        const size_t of_calls = stacks.size();
        if (!events_.phases.empty())
            for (std::vector<Turn> &stack : stacks_of(std::move(events_.phases)))
                stacks.push_back(std::move(stack));
        for (size_t i = 0; i < stacks.size() && !error_.any(); ++i) {
            const OTF2_LocationRef location = Definitions::location_of(rank, i);
            const uint64_t count = write_location(location, [&](LocationWriter &to) {
                auto point = i == 0 ? events_.points.begin() : events_.points.end();
                for (const Turn &turn : stacks[i]) {
                    for (; point != events_.points.end() && point->at_ns < turn.at_ns; ++point)
                        to.point(*point);
                    to.turn(turn);
                }
                for (; point != events_.points.end(); ++point)
                    to.point(*point);
            });
            definitions_.location(rank, i, count, i >= of_calls);
        }
        events_ = {};
    }

    /// How many events `write` has written.
    template <typename Write>
    uint64_t write_location(OTF2_LocationRef location, Write &&write) {
        OTF2_EvtWriter *writer = OTF2_Archive_GetEvtWriter(archive_, location);
        error_.needs(writer);
        if (error_.any())
            return 0;
        has_events_.insert(location);
        LocationWriter to(writer, attributes_, events_, error_);
        write(to);
        uint64_t count = 0;
        error_(OTF2_EvtWriter_GetNumberOfEvents(writer, &count));
        error_(OTF2_Archive_CloseEvtWriter(archive_, writer));
        return count;
    }

    void write_marks() {
        if (marks_.empty())
            return;
        OTF2_MarkerWriter *writer = OTF2_Archive_GetMarkerWriter(archive_);
        error_.needs(writer);
        if (error_.any())
            return;
        error_(OTF2_MarkerWriter_WriteDefMarker(writer, 0, "FLX", "links", OTF2_SEVERITY_MEDIUM));
        for (const Mark &mark : marks_)
            error_(OTF2_MarkerWriter_WriteMarker(writer, static_cast<OTF2_TimeStamp>(mark.at_ns), 0, 0,
                                                 OTF2_MARKER_SCOPE_LOCATION, Definitions::location_of(mark.rank, 0),
                                                 mark.text.c_str()));
        error_(OTF2_Archive_CloseMarkerWriter(archive_, writer));
    }

    OTF2_Archive *archive_;
    OTF2_AttributeList *attributes_;
    ArchiveMade &made_;
    Otf2Error &error_;
    Definitions definitions_;
    std::map<std::pair<uint64_t, int64_t>, Membership> memberships_;  ///< by rank in the world and row
    std::set<int64_t> written_;                                       ///< ranks
    std::set<OTF2_LocationRef> has_events_;
    std::vector<Mark> marks_;
    int64_t rank_ = -1;  ///< whose events these are:
    RankEvents events_;
    int64_t last_ns_ = 0;
    size_t names_ = 0;
};

bool convert(traces::TraceReader &reader, const traces::Header &header, const std::string &folder, ArchiveMade &made,
             std::string &problem) {
    constexpr uint64_t kEventChunk = 1 << 20;
    constexpr uint64_t kDefinitionChunk = 4 << 20;
    Otf2Error error;
    OTF2_Archive *archive = OTF2_Archive_Open(folder.c_str(), "traces", OTF2_FILEMODE_WRITE, kEventChunk,
                                              kDefinitionChunk, OTF2_SUBSTRATE_POSIX, OTF2_COMPRESSION_NONE);
    error.needs(archive);
    if (archive != nullptr) {
        error(OTF2_Archive_SetFlushCallbacks(archive, &kFlush, nullptr));
        error(OTF2_Archive_SetSerialCollectiveCallbacks(archive));
        error(OTF2_Archive_SetCreator(archive, fmt::format("FLX {}", header.flx).c_str()));
        error(OTF2_Archive_OpenEvtFiles(archive));
        Converter converter(archive, made, error);
        std::string why;
        while (!error.any()) {
            const Event *event = reader.next();
            if (event == nullptr) {
                problem = reader.problem();
                break;
            }
            if (!converter.take(*event, why)) {
                problem = reader.refused(why);
                break;
            }
        }
        if (problem.empty() && !error.any())
            converter.finish(header);
        error(OTF2_Archive_Close(archive));
    }
    if (problem.empty() && error.any())
        problem = fmt::format("{} cannot be written: {}", folder, error.sentence());
    return problem.empty();
}

}  // namespace

std::string why_no_archives() {
    return {};
}

bool write_archive(std::istream &trace, const std::string &name, const std::string &folder, ArchiveMade &made,
                   std::string &problem) {
    traces::TraceReader reader(trace, name);
    traces::Header header;
    if (!reader.begin(header)) {
        problem = reader.problem();
        return false;
    }
    if (mkdir(folder.c_str(), S_IRWXU | S_IRWXG | S_IRWXO) != 0) {
        problem = errno == EEXIST ? fmt::format("{} is there already", folder)
                                  : fmt::format("the folder {} cannot be made: {}", folder, std::strerror(errno));
        return false;
    }
    OTF2_Error_RegisterCallback(keep_silent, nullptr);
    if (!convert(reader, header, folder, made, problem)) {
        std::error_code ignored;
        std::filesystem::remove_all(folder, ignored);
        return false;
    }
    if (reader.truncated())
        made.notes.emplace_back("the trace has no end: all whole lines were read");
    return true;
}

}  // namespace flx::trace
