/// \file rail.h
/// One incarnation of a rail of this process: its worker, its peers, the chunks that are under way in both directions,
/// and the acknowledgements. Lines (line.h) have one or several; links of communicators (rail_link.h) sit on top.
///
/// Every function but the constructor and open() must be called with the gate held (gate.h). Active message handlers
/// and completion callbacks only change state; what they cause to be sent is sent by progress() after UCX has returned.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ucx_glue/context.h"
#include "ucx_glue/gate.h"
#include "ucx_glue/landing.h"
#include "ucx_glue/pool.h"
#include "ucx_glue/rails.h"
#include "ucx_glue/wire.h"

namespace flx::ucx {

class Line;
class Rail;
class RailLink;
struct Resend;
struct Target;
struct Peer;

/// A chunk of ours that its receiver has not acknowledged, or whose completion was not collected.
struct Outgoing {
    Outgoing *next = nullptr;
    Peer *peer = nullptr;
    RailLink *link = nullptr;  ///< that counts it; null when the link was destroyed first
    RailLink *home = nullptr;  ///< where its completion is collected: another link where it was sent again
    bool resent = false;
    const void *source = nullptr;  ///< the caller's memory, or `copy`; as it was until the chunk is acknowledged
    int rank = -1;
    uint32_t index = 0;       ///< in the pool
    uint32_t generation = 0;  ///< how often this object was used; part of the number
    uint16_t requests = 0;    ///< UCX requests that still refer to it
    bool used = false;
    bool acknowledged = false;
    bool kept = false;     ///< back, to go with others: nothing of it has left
    bool putting = false;  ///< the payload is being put; the message that announces it was not sent
    int copy_class = 0;
    std::byte *copy = nullptr;  ///< null: the source is the caller's
    ChunkWire wire{};
};

/// A chunk that came in and was not released.
struct Inbound {
    enum class Memory : uint8_t { none, pooled, ucx, slot };
    Inbound *next = nullptr;
    Inbound *prev = nullptr;
    Peer *peer = nullptr;
    int rank = -1;  ///< of the peer, in the link's communicator
    uint32_t number = 0;
    bool prompt = false;
    bool handed = false;  ///< to the executor
    Memory memory = Memory::none;
    uint32_t line = 0;  ///< of a relayed chunk: RelayWire::line
    int buffer_class = 0;
    std::byte *data = nullptr;
    ChunkHeader header{};
};

/// Another process, as this rail knows it.
struct Peer {
    Rail *rail = nullptr;
    int process = -1;  ///< -1: it has sent to us, but connect() has not been called yet
    uint64_t uid = 0;
    std::string address;
    ucp_ep_h endpoint = nullptr;
    /// Acknowledgements have a connection of their own. Behind a window of chunks in a transport's queue they would
    /// come so late that the two directions take turns. Made and closed with the other.
    ucp_ep_h ack_endpoint = nullptr;
    bool ack_connected = false;  ///< something was sent on it
    ucs_status_t failure = UCS_OK;
    Target *target = nullptr;  ///< of the line; null: connect() has not been called yet

    uint64_t heard = 0;     ///< messages that came
    uint32_t sent = 0;      ///< chunks
    uint32_t received = 0;  ///< likewise
    uint32_t echo = 0;      ///< bytes that it wants back; 0: nothing

    size_t unacknowledged_bytes = 0;
    uint32_t unacknowledged_chunks = 0;
    Outgoing *kept_first = nullptr;  ///< chunks that were kept back, to go as one message
    Outgoing *kept_last = nullptr;
    uint32_t kept_chunks = 0;
    size_t kept_bytes = 0;
    RemoteRing remote;  ///< where we put
    LandingRing ring;   ///< where it puts

    std::vector<uint32_t> owed;  ///< numbers of its chunks that we released and did not acknowledge yet
    size_t owed_bytes = 0;
    bool owed_promptly = false;
    uint32_t handed = 0;         ///< its chunks that the executor holds
    RailLink *reader = nullptr;  ///< the link that handed over the last of them
    uint32_t credit = 0;         ///< the credit that goes to it with acknowledgements: AckWire::credit
    uint32_t told = 0;           ///< the credit that came with its acknowledgements

    bool relayed = false;  ///< stands for one whose chunks came through another: acknowledged by Relay

    bool deferred = false;  ///< on the rail's list of things to do after progress, namely:
    bool wants_endpoint = false;
    bool wants_ring = false;
    bool has_grant = false;
    RingGrantWire grant{};
    std::string grant_key;
};

class Rail {
  public:
    Rail(Line &line, uint64_t uid, const RailOptions &options);
    Rail(const Rail &) = delete;
    Rail &operator=(const Rail &) = delete;
    /// Takes at most about 350 ms whatever the peers do.
    ~Rail();

    Status open();
    [[nodiscard]] const RailSpec &spec() const { return spec_; }
    [[nodiscard]] const RailOptions &options() const { return options_; }
    [[nodiscard]] const std::string &address() const { return context_.address; }
    /// What stopped working without a peer having failed; empty if nothing did.
    [[nodiscard]] const std::string &problem() const { return problem_; }

    [[nodiscard]] Line &line() const { return line_; }

    /// The peer of `target`, whose worker is at `address` (empty: not known yet, and then nothing is sent). Once an
    /// endpoint was made the address stays.
    Peer &connect(Target &target, const std::string &address);
    /// Null where nothing came from it and connect() was not called.
    Peer *known(uint64_t uid);

    /// Hands over what came for `link` before it was made.
    void attach(RailLink &link);
    /// Lets go of `link`. Waits, boundedly, for UCX to let go of the senders' memory, and else closes the endpoint.
    void detach(RailLink &link);

    /// `soon`: it may be kept back, to go with others.
    SendResult send(Peer &peer, RailLink &link, int rank, const ChunkHeader &header, const void *data, bool soon);
    /// Sends what was kept back.
    void send_kept();
    /// Sends a chunk that another connection lost, counted by `link` (may be null), whether there is room in the window
    /// or not. True if taken.
    bool resend(Peer &peer, RailLink *link, Resend &resend);
    /// Hands out one unacknowledged chunk of a peer that failed, once UCX has let go of it; false: there is none.
    bool surrender(Peer &peer, Resend &resend);
    /// Whether UCX still refers to chunks of this peer.
    [[nodiscard]] bool clings(const Peer &peer) const;
    void fail_peer(Peer &peer, ucs_status_t status);
    /// Closes it by force and waits, boundedly, until UCX has ended what was under way on it.
    void close_endpoint(Peer &peer);
    /// Asks the peer for an echo of so many bytes. False: failed.
    bool send_echo(Peer &peer, uint32_t bytes, bool back);
    bool send_up(Peer &peer);
    void release(Inbound *chunk);
    /// Takes `payload` if UCX does; so many of its bytes are let go of (Relay) when it is sent.
    bool send_relay(Peer &peer, const RelayWire &wire, std::vector<std::byte> &payload, size_t counted);
    /// A link has handed the completion over, or goes with it.
    void collected(Outgoing *chunk);

    /// `flush`: sends all that is owed where nothing moved. Else acknowledgements that nobody waits for may stay until
    /// they can ride on a chunk.
    bool progress(bool flush);
    /// Sends what is owed, and prepares to be woken, where tells(): returns a descriptor that becomes readable when
    /// something comes or can be sent. -1: something is there already.
    [[nodiscard]] int arm();
    [[nodiscard]] bool tells() const { return context_.events >= 0; }
    /// Whether this process waits for something on this rail.
    [[nodiscard]] bool busy() const { return live_unacknowledged_ > 0 || !flushed(); }
    /// Whether everything that this process owes its peers has left.
    [[nodiscard]] bool flushed() const {
        return requests_ == 0 && keeping_.empty() && owing_.empty() && deferred_.empty();
    }
    /// Likewise, but for acknowledgements of chunks that were copied.
    [[nodiscard]] bool settled() const;
    /// Whether nothing of anybody's is in it.
    [[nodiscard]] bool unused() const;
    /// An endpoint was closed by force: UCX makes no further one here safely.
    [[nodiscard]] bool tainted() const { return tainted_; }
    [[nodiscard]] bool unacknowledged() const { return live_unacknowledged_ > 0; }

  private:
    struct AckMessage {
        AckMessage *next = nullptr;
        Rail *rail = nullptr;
        Peer *peer = nullptr;
        AckWire wire{};
        uint32_t numbers[kAcksPerMessage]{};
    };
    struct ControlMessage {
        ControlMessage *next = nullptr;
        Rail *rail = nullptr;
        Peer *peer = nullptr;
        RingRequestWire request{};
        RingGrantWire grant{};
        EchoWire echo{};
    };

    struct Batch {  // chunks that go together
        Batch *next = nullptr;
        uint32_t chunks = 0;
        Outgoing *chunk[kMostTogether]{};
        ucp_dt_iov_t parts[2 * kMostTogether]{};  // header and payload of each
    };

    struct RelayMessage {
        RelayMessage *next = nullptr;
        Rail *rail = nullptr;
        Peer *peer = nullptr;
        RelayWire wire{};
        std::vector<std::byte> payload;
        size_t counted = 0;
    };

    // rail.cpp
    Status set_handlers();
    bool ensure_endpoint(Peer &peer);
    bool open_endpoint(Peer &peer, ucp_ep_h &endpoint);
    void defer(Peer &peer);
    void run_deferred();
    bool send_control(Peer &peer, MessageId id, EchoWire echo = {});
    void give_ring(Peer &peer);
    void break_held_up(const Peer &peer);
    void close_all_endpoints();
    ucs_status_ptr_t close(ucp_ep_h endpoint, bool force);
    void await_closed(ucs_status_ptr_t request, int64_t end_ns);
    static void endpoint_failed(void *peer, ucp_ep_h endpoint, ucs_status_t status);
    static void control_sent(void *request, ucs_status_t status, void *data);

    // rail_send.cpp
    SendResult can_start(Peer &peer, const RailLink &link, int rank, size_t bytes, bool &put);
    bool start(Outgoing *chunk, bool put);
    void count_started(Outgoing &chunk);
    void keep(Outgoing *chunk);
    void send_kept(Peer &peer);
    void start_batch(Peer &peer, Outgoing *first, uint32_t chunks);
    static void batch_sent(void *request, ucs_status_t status, void *data);
    void let_go(Outgoing *chunk);
    Outgoing *take_outgoing(Peer &peer, RailLink *link, int rank, const ChunkHeader &header);
    void drop_outgoing(Outgoing *chunk);
    bool start_put(Outgoing *chunk, const void *data);
    bool start_message(Outgoing *chunk, const void *payload, size_t bytes);
    void finish_if_done(Outgoing *chunk, int64_t now);
    void acknowledged(Peer &peer, const uint32_t *numbers, size_t count);
    bool sends_for(const RailLink &link) const;
    void forsake(Outgoing &chunk);
    static void chunk_sent(void *request, ucs_status_t status, void *data);

    // rail_receive.cpp
    Peer &peer_by_uid(uint64_t uid);
    Peer *sender(uint64_t uid);
    bool take_payload(Inbound &chunk, const ChunkWire &wire, void *data, size_t bytes, bool persistent);
    void deliver(Inbound *chunk);
    void release_stale();
    void free_inbound(Inbound *chunk);
    [[nodiscard]] static bool more_comes(const Peer &peer);
    [[nodiscard]] bool deaf() const;
    template <typename Wire>
    bool read(const void *header, size_t bytes, Wire &wire) const;
    void owe(Peer &peer, uint32_t number, size_t bytes, bool prompt);
    void send_acks(Peer &peer);
    void send_due_acks(bool all);
    uint32_t take_riding_acks(Peer &peer, uint32_t *numbers);
    static ucs_status_t chunk_handler(void *rail, const void *header, size_t header_bytes, void *data, size_t bytes,
                                      const ucp_am_recv_param_t *param);
    static ucs_status_t chunks_handler(void *rail, const void *header, size_t header_bytes, void *data, size_t bytes,
                                       const ucp_am_recv_param_t *param);
    /// Whether UCX's memory of the payload was kept.
    bool take_chunk(const ChunkWire &wire, void *data, size_t bytes, bool persistent);
    static ucs_status_t ack_handler(void *rail, const void *header, size_t header_bytes, void *data, size_t bytes,
                                    const ucp_am_recv_param_t *param);
    static ucs_status_t ring_request_handler(void *rail, const void *header, size_t header_bytes, void *data,
                                             size_t bytes, const ucp_am_recv_param_t *param);
    static ucs_status_t ring_grant_handler(void *rail, const void *header, size_t header_bytes, void *data,
                                           size_t bytes, const ucp_am_recv_param_t *param);
    static ucs_status_t echo_handler(void *rail, const void *header, size_t header_bytes, void *data, size_t bytes,
                                     const ucp_am_recv_param_t *param);
    static ucs_status_t up_handler(void *rail, const void *header, size_t header_bytes, void *data, size_t bytes,
                                   const ucp_am_recv_param_t *param);
    static ucs_status_t relay_handler(void *rail, const void *header, size_t header_bytes, void *data, size_t bytes,
                                      const ucp_am_recv_param_t *param);
    void take_relayed(const RelayWire &wire, const void *data, size_t bytes);
    [[nodiscard]] RailLink *landing(const Inbound &chunk) const;
    static void relay_sent(void *request, ucs_status_t status, void *data);
    static void acks_sent(void *request, ucs_status_t status, void *data);

    Line &line_;
    RailSpec spec_;
    uint64_t uid_;
    RailOptions options_;
    size_t slot_bytes_;
    uint32_t slots_;
    Context context_;
    std::string problem_;
    bool closing_ = false;
    bool ending_ = false;  // failures are nobody's business any more
    bool tainted_ = false;

    std::vector<std::unique_ptr<Peer>> peers_;
    std::unordered_map<uint64_t, Peer *> by_uid_;
    std::unordered_map<uint64_t, std::unique_ptr<Peer>> origins_;  // of relayed chunks
    Peer *last_peer_ = nullptr;                                    // of by_uid_: chunks come in runs

    NodePool<Outgoing> outgoing_;
    NodePool<Inbound> inbound_;
    NodePool<Batch> batches_;
    NodePool<AckMessage> ack_messages_;
    NodePool<ControlMessage> control_messages_;
    NodePool<RelayMessage> relay_messages_;
    BufferPool buffers_;
    size_t copied_bytes_ = 0;
    List<Inbound> orphans_;
    List<Inbound> stale_;                 // duplicates to be acknowledged
    Outgoing *announce_first_ = nullptr;  // payloads that were put and are to be announced
    Outgoing *announce_last_ = nullptr;

    std::vector<Peer *> keeping_;  // have chunks that were kept back
    std::vector<Peer *> owing_;
    std::vector<Peer *> deferred_;
    size_t live_unacknowledged_ = 0;  // chunks to peers that have not failed
    size_t requests_ = 0;             // of UCX
    size_t inbound_used_ = 0;
    int idle_polls_ = 0;       // since something moved
    bool small_came_ = false;  // in this progress()
};

}  // namespace flx::ucx
