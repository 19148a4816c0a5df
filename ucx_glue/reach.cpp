#include "ucx_glue/reach.h"

namespace flx::ucx {

void Reach::attached(const RailLink &link) {
    ++links_[link.comm_id()];
    gone_.erase(link.comm_id());
}

/// A link may go while others of its communicator stay: FLX_LINKS does not name it, or it failed while it was measured.
void Reach::detached(const RailLink &link) {
    const auto entry = links_.find(link.comm_id());
    if (--entry->second != 0)
        return;
    links_.erase(entry);
    gone_.insert(link.comm_id());
}

bool Reach::may_leave(const Line &line, uint32_t comm) const {
    return line.link(comm) != nullptr || links_.count(comm) == 0;
}

bool Reach::may_use(const Target &target, uint32_t comm) const {
    const RailLink *link = target.line->link(comm);
    return link != nullptr ? link->serves(target) : links_.count(comm) == 0;
}

bool Reach::direct(uint32_t comm, int process) const {
    bool up = false;
    each(comm, process, [&](const Target &target) { up = up || target.standing == Standing::up; });
    return up;
}

RailLink *Reach::landing(uint32_t comm, int process, uint32_t line) const {
    RailLink *any = nullptr;
    for (const Line *each : lines_) {
        RailLink *link = each->link(comm);
        if (link == nullptr || !link->serves(process))
            continue;
        any = link;
        if (each->index() == line)
            break;
    }
    return any;
}

}  // namespace flx::ucx
