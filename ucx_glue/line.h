/// \file line.h
/// What users call a rail: a device of this host, through all its incarnations. UCX survives a lost connection only by
/// starting anew, so a line that has lost one opens a further Rail (context, worker, endpoints) for the peers
/// concerned, while those that were not affected stay where they are. Links of communicators sit on lines.
///
/// To be used with the gate held, as rails are.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ucx_glue/failover.h"
#include "ucx_glue/rail.h"

namespace flx::ucx {

/// How a line stands with one process.
enum class Standing : uint8_t {
    up,
    lost,
    offered,   ///< this process has proposed a new connection
    probation  ///< there is one, which must prove itself
};

/// Another process, as a line knows it.
struct Target {
    Line *line = nullptr;
    int process = -1;
    uint64_t uid = 0;
    Peer *peer = nullptr;  ///< of the incarnation that serves it, or served it last
    Standing standing = Standing::up;
    bool gone = false;       ///< it said goodbye, or its process ended: nothing to mend
    uint32_t far_index = 0;  ///< of its line
    HostAddress host{};      ///< of its device
    int path = -1;           ///< Paths; -1: the device has no address
    uint32_t epoch = 0;      ///< counts connections

    // Detection: Failover::watch.
    uint64_t heard = 0;
    int64_t quiet_since_ns = 0;
    int64_t asked_ns = 0;
    int64_t elsewhere_since_ns = 0;  ///< it has answered what it was asked well into the silence of this path; 0: not
    uint64_t path_answers = 0;       ///< before that silence
    uint32_t far_received = 0;       ///< chunks of ours that it had received when it last said so
    uint32_t far_answers = 0;        ///< since the line went quiet
    int64_t far_changed_ns = 0;
    int64_t count_asked_ns = 0;

    // Recovery: Failover::mend.
    std::string why;                      ///< it was lost
    std::map<std::string, size_t> moved;  ///< chunks that it had taken, by what has taken them since
    bool to_report = false;
    int64_t lost_ns = 0;
    int64_t told_ns = 0;
    int64_t next_offer_ns = 0;
    int64_t since_ns = 0;  ///< of the standing
    uint64_t answers_when_lost = 0;
    uint32_t echoes = 0;  ///< that came back
};

class Line {
  public:
    Line(RailSpec spec, uint32_t index, uint64_t uid, const RailOptions &options, Gate &gate, Failover &failover);
    Line(const Line &) = delete;
    Line &operator=(const Line &) = delete;
    ~Line();

    /// Opens the first incarnation.
    Status open();
    [[nodiscard]] std::unique_lock<Gate> lock() { return std::unique_lock(gate_); }
    [[nodiscard]] const RailSpec &spec() const { return spec_; }
    [[nodiscard]] const RailOptions &options() const { return options_; }
    [[nodiscard]] uint32_t index() const { return index_; }
    [[nodiscard]] Failover &failover() { return failover_; }
    [[nodiscard]] std::string problem() const;

    /// The address of the newest incarnation, with what peers need to mend a connection.
    [[nodiscard]] std::string address() const;
    Status connect(int process, uint64_t uid, const std::string &address);
    /// Null where connect() was not called for it.
    [[nodiscard]] Target *target(int process) const;
    [[nodiscard]] const std::vector<std::unique_ptr<Target>> &targets() const { return by_process_; }

    void attach(RailLink &link);
    /// Hands over what came for the communicator of `link` before it was made.
    void adopt(RailLink &link);
    void detach(RailLink &link);
    /// All incarnations let go of `link`, which may be of another line whose chunks were sent again here.
    void let_go(RailLink &link);
    [[nodiscard]] RailLink *link(uint32_t comm) const;
    /// Whether a communicator uses the line to this process.
    [[nodiscard]] bool wanted(const Target &target) const;

    bool progress(bool flush);
    /// Rail::arm of all incarnations, added to `events`; false: something is there already.
    bool arm(std::vector<int> &events);
    /// Whether arrivals wake a process that sleeps.
    [[nodiscard]] bool tells() const;
    [[nodiscard]] bool busy() const;
    [[nodiscard]] bool flushed() const;
    [[nodiscard]] bool settled() const;
    /// See Link::flush.
    void flush();
    /// Whether chunks of this process are unacknowledged.
    [[nodiscard]] bool unacknowledged() const;

    /// A peer of an incarnation that has no failed connection to that process, opened if need be.
    Status fresh(const Target &target, Peer *&peer, std::string &address);
    /// Closes incarnations that no peer uses and that hold nothing.
    void close_unused();
    /// Test hook: from now on what arrives is dropped, as by a network that swallows it.
    void drop_arrivals(bool drop) { drops_ = drop; }
    [[nodiscard]] bool drops() const { return drops_; }

  private:
    Status open_incarnation();

    RailSpec spec_;
    const uint32_t index_;
    const uint64_t uid_;
    const RailOptions options_;
    Gate &gate_;
    Failover &failover_;
    HostAddress local_{};                       // of the device
    std::vector<std::unique_ptr<Rail>> rails_;  // oldest first
    int64_t opened_ns_ = 0;
    std::vector<std::unique_ptr<Target>> by_process_;
    std::unordered_map<uint32_t, RailLink *> links_;
    bool drops_ = false;
};

}  // namespace flx::ucx
