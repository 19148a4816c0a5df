#include "runtime/record/recorder.h"

#include <dlfcn.h>

#include "runtime/base/log.h"
#include "runtime/record/passed_calls.h"

namespace flx::record {
namespace {

/// Of a library in front of MPI; null: there is none.
Handover *handover_of_front() {
    const auto function = reinterpret_cast<Handover *(*)()>(dlsym(RTLD_DEFAULT, kHandover));
    return function != nullptr ? function() : nullptr;
}

/// What it has made already; null: nothing.
Handover *handed_over() {
    Handover *const handover = handover_of_front();
    return handover != nullptr && handover->file != nullptr ? handover : nullptr;
}

/// The part of the trace for calls that are passed on to MPI.
class WritesPassed final : public PassedTrace {
  public:
    explicit WritesPassed(TraceWriter &writer) : writer_(writer) {}
    void communicator(uint32_t place, const CommunicatorFacts &facts) override {
        writer_.communicator(place, facts.id, facts.rank, facts.size, facts.hosts, facts.first_uid);
    }
    void enter(uint64_t stamp, int64_t now, const Where &where, const CallWords &words) override {
        writer_.enter(stamp, now, std::bit_cast<uint64_t>(where), words);
    }
    void leave(uint64_t stamp, int64_t now) override { writer_.leave(stamp, now, 0); }
    void take_back(uint64_t stamp) override { writer_.take_back(stamp); }

  private:
    TraceWriter &writer_;
};

/// What this copy of FLX has told the library in front; null: nothing.
std::atomic<PassedTrace *> passed{nullptr};

/// Calls that MPI gets are to be in a trace before there is a communicator of FLX's.
void begin_trace() {
    if (const Handover *handover = handed_over(); handover != nullptr && !handover->trace_file.empty())
        Recorder::of_process({handover->seen, handover->trace_file, handover->hostname, handover->threads});
}

/// A program that is linked with libflx loads it long before MPI_Init, in which the record is made, and one that loads
/// it by hand may unload it before that.
class WithTheLibrary {
  public:
    WithTheLibrary() : handover_(handover_of_front()) {
        if (handover_ != nullptr && handover_->file == nullptr)
            handover_->when_made.store(begin_trace, std::memory_order_release);
        else
            begin_trace();
    }
    ~WithTheLibrary() {
        if (handover_ == nullptr)
            return;
        void (*own)() = begin_trace;
        handover_->when_made.compare_exchange_strong(own, nullptr);
        PassedTrace *writes = passed.exchange(nullptr);
        if (writes != nullptr)
            handover_->trace.compare_exchange_strong(writes, nullptr);
    }
    WithTheLibrary(const WithTheLibrary &) = delete;
    WithTheLibrary &operator=(const WithTheLibrary &) = delete;

  private:
    Handover *const handover_;
};
const WithTheLibrary with_the_library;

}  // namespace

Recorder &Recorder::of_process(const Wanted &wanted) {
    static Recorder recorder(wanted);
    if (wanted.threads)
        recorder.threads_.store(true, std::memory_order_relaxed);
    return recorder;
}

Recorder::Recorder(const Wanted &wanted) : exact_(!wanted.trace.empty()), tsc_(exact_ && ticks_are_tsc()) {
    Handover *const handover = handed_over();
    if (handover != nullptr) {
        file_ = handover->file;
        seen_ = handover->seen;
    } else {
        if (const Status status = own_.make({wanted.record, exact_, wanted.hostname, {}}); !status.ok())
            log().info("calls are not recorded: {}", status.sentence());
        file_ = own_.get();
        seen_ = own_.seen();
    }
    if (file_ == nullptr || wanted.trace.empty())
        return;
    if (const Status status = TraceWriter::open(wanted.trace, *file_, trace_); !status.ok())
        log().warn("there is no trace: {}", status.sentence());
    else if (handover != nullptr)
        pass_on_to_trace(*handover);
}

/// Those that have a place by now were told to nobody.
void Recorder::pass_on_to_trace(Handover &handover) {
    for (uint32_t place = 0; place < kCommunicators; ++place)
        if (const Communicator &comm = file_->communicators[place];
            comm.state.load(std::memory_order_acquire) == static_cast<uint32_t>(State::open))
            trace_->communicator(place, comm.id, comm.rank, comm.size, comm.hosts, comm.first_uid);
    passed = new WritesPassed(*trace_);  // stays, as what it writes to does
    handover.trace.store(passed, std::memory_order_release);
}

/// Others may still write: the memory stays.
Recorder::~Recorder() {
    if (trace_)
        trace_.release()->finish();
}

uint32_t Recorder::open(const Facts &facts) {
    const uint32_t place = file_ == nullptr ? kNowhere : take_place(*file_, facts);
    if (place == kNowhere)
        return kNowhere;
    Communicator &comm = file_->communicators[place];
    for (uint32_t l = 0; l < comm.links; ++l) {
        copy_text(comm.link[l].name, facts.links[l].name);
        comm.link[l].usual.store(facts.links[l].bytes_per_s, std::memory_order_relaxed);
        note_link(place, l, {});
    }
    comm.state.store(static_cast<uint32_t>(State::open), std::memory_order_release);
    if (trace_) {
        trace_->communicator(place, facts.id, facts.rank, facts.size, facts.hosts, facts.first_uid);
        for (uint32_t l = 0; l < comm.links; ++l)
            trace_->link_name(place, l, facts.links[l].name, facts.links[l].bytes_per_s, facts.links[l].latency_s);
    }
    return place;
}

void Recorder::close(uint32_t place) {
    if (place != kNowhere)
        file_->communicators[place].state.store(static_cast<uint32_t>(State::freed), std::memory_order_release);
}

void Recorder::broken(uint32_t place, std::string_view sentence) {
    if (place == kNowhere)
        return;
    Communicator &comm = file_->communicators[place];
    comm.says_stamp.fetch_add(1, std::memory_order_acq_rel);
    const std::string said = shortened(sentence, comm.says.size() - 1);
    for (size_t i = 0; i < said.size(); ++i)
        comm.says[i].store(said[i], std::memory_order_release);
    comm.says[said.size()].store('\0', std::memory_order_release);
    comm.says_stamp.fetch_add(1, std::memory_order_release);
    comm.state.store(static_cast<uint32_t>(State::broken), std::memory_order_release);
}

void Recorder::wait(uint32_t place, uint64_t stamp, const Waiting &waiting) {
    if (place == kNowhere || stamp == 0)
        return;
    Wait &wait = file_->communicators[place].wait;
    wait.since_ns.store(waiting.since_ns, std::memory_order_relaxed);
    wait.peer.store(waiting.peer, std::memory_order_relaxed);
    wait.missing.store(waiting.missing, std::memory_order_relaxed);
    wait.unacknowledged.store(waiting.unacknowledged, std::memory_order_relaxed);
    wait.progress.store(std::bit_cast<uint64_t>(waiting.progress), std::memory_order_relaxed);
    wait.stamp.store(stamp, std::memory_order_release);
}

void Recorder::waits_no_more(uint32_t place) {
    if (place == kNowhere)
        return;
    Wait &wait = file_->communicators[place].wait;
    if (trace_ && wait.stamp.load(std::memory_order_relaxed) != 0)
        trace_->waited(place, wait.since_ns.load(std::memory_order_relaxed), now_ns(),
                       static_cast<int>(wait.peer.load(std::memory_order_relaxed)));
    wait.stamp.store(0, std::memory_order_release);
}

bool Recorder::reports(Report what, int64_t at_ns) {
    if (!seen_)
        return false;
    std::atomic<int64_t> &place = what == Report::asked      ? file_->signalled_ns
                                  : what == Report::answered ? file_->answered_ns
                                                             : file_->reports_ns;
    place.store(at_ns, std::memory_order_release);
    return true;
}

void Recorder::carried(uint32_t place, size_t link, const LinkNow &now) {
    if (place == kNowhere || link >= kLinks)
        return;
    note_link(place, link, now);
    if (trace_)
        trace_->carried(place, link, now.sent, now.share, now.is_on && now.lost_to < 0);
}

void Recorder::clock(uint32_t place, int64_t offset_ns, int64_t error_ns) {
    if (place != kNowhere && trace_)
        trace_->clock(place, offset_ns, error_ns);
}

void Recorder::note_link(uint32_t place, size_t link, const LinkNow &now) {
    Link &line = file_->communicators[place].link[link];
    line.sent.store(now.sent, std::memory_order_relaxed);
    line.share.store(now.share, std::memory_order_relaxed);
    line.is_on.store(now.is_on ? 1 : 0, std::memory_order_relaxed);
    line.lost_to.store(now.lost_to, std::memory_order_relaxed);
    line.now.store(now.bytes_per_s, std::memory_order_relaxed);
    constexpr double kOften = 50;  // 20 ms lie between two notes
    const double usual = line.usual.load(std::memory_order_relaxed);
    if (now.bytes_per_s > usual)
        line.usual.store(usual + (now.bytes_per_s - usual) / kOften, std::memory_order_relaxed);
}

}  // namespace flx::record
