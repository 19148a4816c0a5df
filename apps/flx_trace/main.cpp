/// Makes a trace of what the ranks of a program wrote under FLX_TRACE, where they did not do so themselves: one of them
/// was killed, or made no communicator of FLX's, or the launcher said no rank. Also writes traces in another form.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "apps/common/command_line.h"
#include "apps/flx_trace/otf2.h"
#include "runtime/record/trace_files.h"

namespace {

int refuse(const std::string &sentence) {
    fmt::print(stderr, "flx_trace: {}\n", sentence);
    return 1;
}

void tell(const std::string &what, uint64_t calls, size_t ranks, const std::vector<std::string> &notes) {
    fmt::print("{}: {} calls of {} ranks\n", what, calls, ranks);
    for (const std::string &note : notes)
        fmt::print("{}\n", note);
}

bool is_there(const std::string &path) {
    std::error_code ignored;
    return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
}

}  // namespace

int main(int argc, char **argv) {
    flx::apps::CommandLine line(
        "flx_trace",
        "Makes the trace FILE of its parts in FILE.parts. Programs that are started with FLX_TRACE=FILE do so "
        "themselves when their last rank ends; this is for those of which a rank did not end as programs do.");
    std::string file;
    std::string folder;
    line.option("FILE", file, "as FLX_TRACE named it").required();
    line.option("--otf2", folder,
                "also write the trace as an archive of OTF2, which Vampir reads, into this folder, which must not "
                "be there; FILE itself may be there instead of its parts");
    if (!line.parse(argc, argv))
        return line.say();
    if (!folder.empty()) {
        if (const std::string why = flx::trace::why_no_archives(); !why.empty())
            return refuse(why);
        if (is_there(folder))
            return refuse(fmt::format("{} is there already", folder));
    }
    if (folder.empty() || !is_there(file) || is_there(file + ".parts")) {
        flx::record::TraceMade made;
        if (const flx::Status status = flx::record::make_trace(file, made); !status.ok())
            return refuse(status.sentence());
        tell(file, made.calls, made.ranks, made.notes);
    }
    if (folder.empty())
        return 0;
    std::ifstream trace(file, std::ios::binary);
    if (!trace.is_open())
        return refuse(fmt::format("{} cannot be read: {}", file, std::strerror(errno)));
    flx::trace::ArchiveMade made;
    std::string problem;
    if (!flx::trace::write_archive(trace, file, folder, made, problem))
        return refuse(problem);
    tell(folder + "/traces.otf2", made.calls, made.ranks, made.notes);
    return 0;
}
