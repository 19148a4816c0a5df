#include "runtime/process/introduction.h"

#include "runtime/base/config.h"
#include "runtime/base/packed.h"
#include "runtime/include/flx.h"

namespace flx {
namespace {

std::string version() {
    return fmt::format("{}.{}.{}", FLX_VERSION_MAJOR, FLX_VERSION_MINOR, FLX_VERSION_PATCH);
}

}  // namespace

std::string to_text(const Introduction &mine) {
    return pack({{"version", version()},
                 {"uid", mine.uid},
                 {"pid", mine.pid},
                 {"host", mine.memory_host},
                 {"name", mine.hostname},
                 {"devices", binary(mine.devices)},
                 {"liveness", mine.liveness},
                 {"cpus", mine.cpus},
                 {"knobs", mine.knobs},
                 {"remembers", mine.remembers}});
}

Status read_introduction(const std::string &text, int rank, const Introduction &mine, int rank_here,
                         Introduction &theirs) {
    nlohmann::json object;
    FLX_TRY(unpack(text, rank, object));
    try {
        // Comes first: what else another version says may be something else.
        const std::string other = object.value("version", "another version");
        if (other != version())
            return fail(Fault::versions_differ, "rank {} runs FLX {}, rank {} runs {}; all ranks need the same library",
                        rank_here, version(), rank, other);
        theirs.uid = object.at("uid");
        theirs.pid = object.at("pid");
        theirs.memory_host = object.at("host");
        theirs.hostname = object.at("name");
        theirs.devices = text_of(object.at("devices"));
        theirs.liveness = object.at("liveness");
        theirs.cpus = object.at("cpus").get<probe::CpuMask>();
        theirs.knobs = object.at("knobs");
        theirs.remembers = object.at("remembers");
    } catch (const nlohmann::json::exception &error) {
        return fail(Fault::not_readable, "what rank {} said of itself cannot be read: {}", rank, error.what());
    }
    return compare_knobs(rank_here, mine.knobs, rank, theirs.knobs);
}

}  // namespace flx
