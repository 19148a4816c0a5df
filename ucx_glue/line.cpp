#include "ucx_glue/line.h"

#include <ifaddrs.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/clock.h"
#include "ucx_glue/held_up.h"
#include "ucx_glue/rail_link.h"
#include "ucx_glue/reach.h"

namespace flx::ucx {

namespace {

constexpr int64_t kOpenGapNs = 1'000'000'000;

/// The one that UCX takes: the first IPv4 address, or the first IPv6 address that does not need its device's name.
HostAddress address_of(const std::string &device) {
    ifaddrs *list = nullptr;
    if (getifaddrs(&list) != 0)
        return {};
    HostAddress found{};
    bool is_ipv4 = false;
    for (const ifaddrs *entry = list; entry != nullptr && !is_ipv4; entry = entry->ifa_next) {
        if (entry->ifa_addr == nullptr || device != entry->ifa_name)
            continue;
        const HostAddress address = host_of(*entry->ifa_addr);
        is_ipv4 = entry->ifa_addr->sa_family == AF_INET;
        if (is_ipv4 || found == HostAddress{})
            found = address;
    }
    freeifaddrs(list);
    return found;
}

RailOptions bounded(RailOptions options) {
    options.chunk_bytes = std::max(options.chunk_bytes, kMaxCellBytes);
    options.copy_bytes = std::min(options.copy_bytes, options.chunk_bytes);
    options.copy_whole_bytes = std::clamp(options.copy_whole_bytes, options.copy_bytes, options.chunk_bytes);
    return options;
}

}  // namespace

Line::Line(RailSpec spec, uint32_t index, uint64_t uid, const RailOptions &options, Gate &gate, Failover &failover)
    : spec_(std::move(spec)),
      index_(index),
      uid_(uid),
      options_(bounded(options)),
      gate_(gate),
      failover_(failover),
      local_(address_of(spec_.device)) {}

Line::~Line() {
    // Until they are flushed, rails take what comes, and ask the line whose it is.
    rails_.clear();
}

Status Line::open() {
    return open_incarnation();
}

Status Line::open_incarnation() {
    opened_ns_ = now_ns();
    auto rail = std::make_unique<Rail>(*this, uid_, options_);
    FLX_TRY(rail->open());
    rails_.push_back(std::move(rail));
    return {};
}

std::string Line::problem() const {
    for (const auto &rail : rails_)
        if (!rail->problem().empty())
            return rail->problem();
    return {};
}

std::string Line::address() const {
    const LineAddress own{local_, index_};
    return std::string(reinterpret_cast<const char *>(&own), sizeof own) + rails_.back()->address();
}

Status Line::connect(int process, uint64_t uid, const std::string &address) {
    if (process < 0)
        return fail(Fault::wrong_inside, "rail {}: {} is no process index", spec_.name, process);
    LineAddress theirs{};
    if (address.size() <= sizeof theirs)
        return fail(Fault::wrong_inside, "rail {}: what process {} gave is no address", spec_.name, process);
    std::memcpy(&theirs, address.data(), sizeof theirs);
    if (static_cast<size_t>(process) >= by_process_.size())
        by_process_.resize(process + 1);
    const auto clashes = [&](const auto &other) {
        return other != nullptr && (other->uid == uid) != (other->process == process);
    };
    if (std::any_of(by_process_.begin(), by_process_.end(), clashes))
        return fail(Fault::wrong_inside, "rail {}: process {} is connected already, to another peer", spec_.name,
                    process);
    if (by_process_[process] != nullptr)
        return {};
    by_process_[process] = std::make_unique<Target>();
    Target &target = *by_process_[process];
    target.line = this;
    target.process = process;
    target.uid = uid;
    target.far_index = theirs.index;
    target.host = theirs.host;
    target.quiet_since_ns = now_ns();
    if (options_.paths != nullptr && local_ != HostAddress{} && theirs.host != HostAddress{})
        target.path = options_.paths->add_path(uid, spec_.device, local_, theirs.host);
    // The peer was given the address of the newest incarnation, so that is where it sends to.
    target.peer = &rails_.back()->connect(target, address.substr(sizeof theirs));
    failover_.add(target);
    return {};
}

Target *Line::target(int process) const {
    return process >= 0 && static_cast<size_t>(process) < by_process_.size() ? by_process_[process].get() : nullptr;
}

void Line::attach(RailLink &link) {
    links_[link.comm_id()] = &link;
    failover_.reach().attached(link);
    failover_.adopt(link);
}

void Line::adopt(RailLink &link) {
    for (const auto &rail : rails_)
        rail->attach(link);
}

void Line::detach(RailLink &link) {
    links_.erase(link.comm_id());
    failover_.reach().detached(link);
    const auto drain = [&] {
        while (Outgoing *chunk = link.take_finished())
            chunk->peer->rail->collected(chunk);
        while (Inbound *chunk = link.take_inbound())
            chunk->peer->rail->release(chunk);
    };
    drain();
    failover_.forget(link);
    drain();
}

void Line::let_go(RailLink &link) {
    for (const auto &rail : rails_)
        rail->detach(link);
}

RailLink *Line::link(uint32_t comm) const {
    const auto found = links_.find(comm);
    return found == links_.end() ? nullptr : found->second;
}

bool Line::wanted(const Target &target) const {
    return std::any_of(links_.begin(), links_.end(), [&](const auto &entry) { return entry.second->serves(target); });
}

bool Line::progress(bool flush) {
    bool moved = false;
    for (const auto &rail : rails_)
        moved |= rail->progress(flush);
    return moved;
}

void Line::flush() {
    for (const auto &rail : rails_)
        rail->send_kept();
}

bool Line::arm(std::vector<int> &events) {
    for (const auto &rail : rails_) {
        const int event = rail->arm();
        if (event < 0)
            return false;
        events.push_back(event);
    }
    return true;
}

bool Line::tells() const {
    return std::all_of(rails_.begin(), rails_.end(), [](const auto &rail) { return rail->tells(); });
}

bool Line::busy() const {
    return std::any_of(rails_.begin(), rails_.end(), [](const auto &rail) { return rail->busy(); });
}

bool Line::flushed() const {
    return std::all_of(rails_.begin(), rails_.end(), [](const auto &rail) { return rail->flushed(); });
}

bool Line::settled() const {
    return std::all_of(rails_.begin(), rails_.end(), [](const auto &rail) { return rail->settled(); });
}

bool Line::unacknowledged() const {
    return std::any_of(rails_.begin(), rails_.end(), [](const auto &rail) { return rail->unacknowledged(); });
}

Status Line::fresh(const Target &target, Peer *&peer, std::string &address) {
    if (const Peer *known = rails_.back()->known(target.uid);
        rails_.back()->tainted() ||
        (known != nullptr && (known->endpoint != nullptr || known->failure != UCS_OK || known == target.peer))) {
        if (now_ns() - opened_ns_ < kOpenGapNs)
            return fail(Fault::rail_not_opened, "rail {}: opened a moment ago", spec_.name);
        FLX_TRY(open_incarnation());
    }
    peer = &rails_.back()->connect(*by_process_[target.process], {});
    address = rails_.back()->address();
    return {};
}

void Line::close_unused() {
    for (size_t i = 0; i + 1 < rails_.size();)
        if (rails_[i]->unused())
            rails_.erase(rails_.begin() + static_cast<std::ptrdiff_t>(i));
        else
            ++i;
}

}  // namespace flx::ucx
