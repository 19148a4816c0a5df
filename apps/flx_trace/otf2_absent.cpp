// In builds without OTF2.
#include "apps/flx_trace/otf2.h"

namespace flx::trace {

std::string why_no_archives() {
    return "this FLX was built without OTF2: install its library (ci/setup --otf2; Debian's name is "
           "libopen-trace-format2-dev) and build FLX again";
}

bool write_archive(std::istream & /*trace*/, const std::string & /*name*/, const std::string & /*folder*/,
                   ArchiveMade & /*made*/, std::string &problem) {
    problem = why_no_archives();
    return false;
}

}  // namespace flx::trace
