#include "ucx_glue/rail.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/clock.h"
#include "ucx_glue/held_up.h"
#include "ucx_glue/line.h"
#include "ucx_glue/quiet.h"
#include "ucx_glue/rail_link.h"

namespace flx::ucx {

namespace {

/// Calls of ucp_worker_progress at once: enough to empty what came in together, few enough to return soon.
constexpr int kPolls = 4;
/// After so many polls of nothing this process waits for something slow, and has time to send what it owes.
constexpr int kIdlePolls = 128;

}  // namespace

Rail::Rail(Line &line, uint64_t uid, const RailOptions &options)
    : line_(line), spec_(line.spec()), uid_(uid), options_(options) {
    slot_bytes_ = (options_.chunk_bytes + 63) / 64 * 64;
    slots_ = static_cast<uint32_t>(
        std::clamp<size_t>((options_.window_bytes + slot_bytes_ - 1) / slot_bytes_, 2, kMaxSlots));
    owing_.reserve(64);
    deferred_.reserve(64);
}

Status Rail::open() {
    FLX_TRY(context_.open(spec_, options_));
    return set_handlers();
}

namespace {

/// All that rails say is sent with its payload. What comes as an announcement of one is from a stranger, and `data` is
/// not what it seems.
template <ucp_am_recv_callback_t handler>
ucs_status_t eager_only(void *rail, const void *header, size_t header_bytes, void *data, size_t bytes,
                        const ucp_am_recv_param_t *param) {
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0)
        return UCS_OK;
    return handler(rail, header, header_bytes, data, bytes, param);
}

}  // namespace

Status Rail::set_handlers() {
    constexpr ucp_am_recv_callback_t handlers[kMessageIds] = {
        eager_only<chunk_handler>,      eager_only<ack_handler>,   eager_only<ring_request_handler>,
        eager_only<ring_grant_handler>, eager_only<echo_handler>,  eager_only<up_handler>,
        eager_only<relay_handler>,      eager_only<chunks_handler>};
    for (unsigned id = 0; id < kMessageIds; ++id) {
        ucp_am_handler_param_t param{};
        param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                           UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
        param.id = id;
        param.flags = UCP_AM_FLAG_WHOLE_MSG;
        param.cb = handlers[id];
        param.arg = this;
        ucs_status_t status = ucp_worker_set_am_recv_handler(context_.worker, &param);
        if (status != UCS_OK)
            return fail(Fault::rail_not_opened, "rail {}: UCX takes no handler of active messages: {}", spec_.name,
                        reason(status));
    }
    return {};
}

Rail::~Rail() {
    ending_ = true;
    if (context_.worker == nullptr)
        return;
    for (int64_t end = now_ns() + 50 * kMs; !flushed() && now_ns() < end;)
        progress(true);
    closing_ = true;
    close_all_endpoints();
    for (Inbound &chunk : inbound_.all())
        if (chunk.data != nullptr && chunk.memory == Inbound::Memory::ucx)
            ucp_am_data_release(context_.worker, chunk.data);
    for (const auto &peer : peers_)
        peer->ring.unmap();
    context_.close();
}

Peer &Rail::connect(Target &target, const std::string &address) {
    Peer &peer = peer_by_uid(target.uid);
    peer.target = &target;
    if (peer.endpoint != nullptr || address.empty())
        return peer;
    peer.address = address;
    peer.process = target.process;
    if (peer.wants_ring || peer.has_grant || peer.echo != 0)
        defer(peer);
    return peer;
}

Peer *Rail::known(uint64_t uid) {
    const auto found = by_uid_.find(uid);
    return found == by_uid_.end() ? nullptr : found->second;
}

bool Rail::unused() const {
    return inbound_used_ == 0 && requests_ == 0 && owing_.empty() && deferred_.empty() &&
           std::none_of(peers_.begin(), peers_.end(), [this](const auto &peer) {
               return peer->unacknowledged_chunks != 0 || clings(*peer) ||
                      (peer->target != nullptr && peer->target->peer == peer.get()) ||
                      (peer->target == nullptr && peer->failure == UCS_OK);
           });
}

bool Rail::ensure_endpoint(Peer &peer) {
    if (peer.endpoint != nullptr)
        return peer.failure == UCS_OK;
    if (peer.failure != UCS_OK || peer.process < 0 || closing_)
        return false;
    if (tainted_) {
        fail_peer(peer, UCS_ERR_UNREACHABLE);
        return false;
    }
    return open_endpoint(peer, peer.endpoint) && open_endpoint(peer, peer.ack_endpoint);
}

bool Rail::open_endpoint(Peer &peer, ucp_ep_h &endpoint) {
    ucp_ep_params_t params{};
    params.field_mask =
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t *>(peer.address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = endpoint_failed;
    params.err_handler.arg = &peer;
    const Quiet quiet;
    ucs_status_t status = ucp_ep_create(context_.worker, &params, &endpoint);
    if (status == UCS_OK)
        return true;
    endpoint = nullptr;
    fail_peer(peer, status);
    return false;
}

/// Called by UCX. Chunks under way to the peer are looked after when UCX has returned (Failover::turn).
void Rail::endpoint_failed(void *peer, ucp_ep_h, ucs_status_t status) {
    auto *failed = static_cast<Peer *>(peer);
    failed->rail->fail_peer(*failed, status);
}

void Rail::fail_peer(Peer &peer, ucs_status_t status) {
    if (peer.failure != UCS_OK)
        return;
    peer.failure = status == UCS_OK ? UCS_ERR_IO_ERROR : status;
    send_kept(peer);  // forgets what was kept back, which goes another way now
    live_unacknowledged_ -= peer.unacknowledged_chunks;
    if (!ending_)
        line_.failover().failed(peer);
}

void Rail::defer(Peer &peer) {
    if (!std::exchange(peer.deferred, true))
        deferred_.push_back(&peer);
}

/// What handlers and callbacks found to be done, now that UCX has returned.
void Rail::run_deferred() {
    while (Outgoing *chunk = announce_first_) {
        announce_first_ = chunk->next;
        if (announce_first_ == nullptr)
            announce_last_ = nullptr;
        if (chunk->peer->failure != UCS_OK)
            continue;
        chunk->putting = false;
        start_message(chunk, nullptr, 0);
    }
    release_stale();
    while (!deferred_.empty()) {
        Peer &peer = *deferred_.back();
        deferred_.pop_back();
        peer.deferred = false;
        if (peer.process < 0)  // connect() puts it on the list again
            continue;
        if (std::exchange(peer.wants_endpoint, false))
            ensure_endpoint(peer);
        if (const uint32_t echo = std::exchange(peer.echo, 0); echo != 0)
            send_echo(peer, echo, true);
        if (std::exchange(peer.wants_ring, false))
            give_ring(peer);
        if (!std::exchange(peer.has_grant, false) || peer.failure != UCS_OK || !ensure_endpoint(peer))
            continue;
        Status status = fail(Fault::no_landing, "the peer has no landing memory");
        if (peer.grant.slots > 0 && peer.grant.slot_bytes < options_.chunk_bytes)
            status = fail(Fault::no_landing, "the peer's landing memory takes chunks of {} bytes, FLX_RAIL_CHUNK is {}",
                          peer.grant.slot_bytes, options_.chunk_bytes);
        else if (peer.grant.slots > 0)
            status = peer.remote.granted(peer.endpoint, peer.grant.base, peer.grant.slots, peer.grant.slot_bytes,
                                         peer.grant_key.data());
        if (!status.ok()) {
            peer.remote.refused();
            problem_ = fmt::format("payload for process {} goes by active messages instead of puts: {}", peer.process,
                                   status.words());
        }
    }
}

void Rail::give_ring(Peer &peer) {
    if (!ensure_endpoint(peer))
        return;
    Status status = peer.ring.mapped() ? Status() : peer.ring.map(context_.context, slots_, slot_bytes_);
    if (!status.ok())
        problem_ = fmt::format("process {} must send payload by active messages: {}", peer.process, status.words());
    send_control(peer, kRingGrantMessage);
}

bool Rail::send_echo(Peer &peer, uint32_t bytes, bool back) {
    return ensure_endpoint(peer) && send_control(peer, kEchoMessage, {uid_, bytes, back ? 1U : 0U});
}

bool Rail::send_up(Peer &peer) {
    return ensure_endpoint(peer) && send_control(peer, kUpMessage);
}

bool Rail::send_control(Peer &peer, MessageId id, EchoWire echo) {
    static constexpr std::array<std::byte, kMostEcho> kNothing{};
    ControlMessage *message = control_messages_.take();
    message->rail = this;
    message->peer = &peer;
    message->request = {uid_};
    message->grant = {uid_, reinterpret_cast<uint64_t>(peer.ring.base()), peer.ring.slots(),
                      static_cast<uint32_t>(peer.ring.slot_bytes())};
    message->echo = echo;
    const void *header = &message->request;
    size_t header_bytes = sizeof message->request;
    const void *payload = nullptr;
    size_t payload_bytes = 0;
    if (id == kRingGrantMessage) {
        header = &message->grant;
        header_bytes = sizeof message->grant;
        payload = peer.ring.key().data();
        payload_bytes = peer.ring.key().size();
    } else if (id == kEchoMessage) {
        header = &message->echo;
        header_bytes = sizeof message->echo;
        payload = kNothing.data();
        payload_bytes = echo.bytes;
    }
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_AM_SEND_FLAG_EAGER;
    param.cb.send = control_sent;
    param.user_data = message;
    ucs_status_ptr_t request = ucp_am_send_nbx(peer.endpoint, id, header, header_bytes, payload, payload_bytes, &param);
    if (UCS_PTR_IS_ERR(request))
        fail_peer(peer, UCS_PTR_STATUS(request));
    if (request == nullptr || UCS_PTR_IS_ERR(request))
        control_messages_.give(message);
    else
        ++requests_;
    return peer.failure == UCS_OK;
}

void Rail::control_sent(void *request, ucs_status_t status, void *data) {
    auto *message = static_cast<ControlMessage *>(data);
    ucp_request_free(request);
    --message->rail->requests_;
    if (status != UCS_OK)
        message->rail->fail_peer(*message->peer, status);
    message->rail->control_messages_.give(message);
}

bool Rail::settled() const {
    return requests_ == 0 && keeping_.empty() && deferred_.empty() &&
           std::none_of(owing_.begin(), owing_.end(), [](const Peer *peer) { return peer->owed_promptly; });
}

bool Rail::progress(bool flush) {
    const Quiet quiet;
    send_kept();
    bool moved = false;
    small_came_ = false;
    // A small chunk may be all that somebody waits for: another look costs it a system call.
    for (int i = 0; i < kPolls && !small_came_ && ucp_worker_progress(context_.worker) != 0; ++i)
        moved = true;
    if (announce_first_ != nullptr || !deferred_.empty() || !stale_.empty()) {
        run_deferred();
        moved = true;
    }
    idle_polls_ = moved ? 0 : idle_polls_ + 1;
    if (!owing_.empty())
        send_due_acks(!moved && (flush || idle_polls_ >= kIdlePolls));
    return moved;
}

int Rail::arm() {
    const Quiet quiet;
    if (!owing_.empty())
        send_due_acks(true);
    return ucp_worker_arm(context_.worker) == UCS_OK ? context_.events : -1;
}

/// UCX 1.13 says goodbye on a connection of TCP that it closes. While something still waits there to be sent it says so
/// later, and calls what it has freed if the peer's goodbye comes just then; it turns in a loop while there is no room;
/// and the goodbye follows half a message. But a connection that it finds broken it closes at once, without a word. So
/// those are broken that are held up, and the others get a moment. The kernel does not tell one process of a host from
/// another: what is broken may be another's, and is lost there, too. It is sent again like all that is lost.
void Rail::break_held_up(const Peer &peer) {
    if (peer.target == nullptr)
        return;
    constexpr int64_t kWaiting = 2 * kMs;
    constexpr int64_t kFull = 20 * kMs;
    constexpr int64_t kBroken = 50 * kMs;
    constexpr int kLeastTurns = 8;  // also where this process had no core for as long
    const int64_t begin = now_ns();
    int64_t patience = kWaiting;
    bool found_any = true;
    for (int turns = 0; patience > 0 || (found_any && turns < kLeastTurns); ++turns) {
        ucp_worker_progress(context_.worker);
        const int64_t took = now_ns() - begin;
        const HeldUp found =
            ucx::break_held_up(context_.events, peer.target->host, took < kFull ? Break::still : Break::full);
        patience = (found.broken + found.full != 0 ? kBroken : found.waiting != 0 ? kWaiting : 0) - took;
        found_any = found.broken + found.full + found.waiting != 0;
    }
}

void Rail::close_endpoint(Peer &peer) {
    const Quiet quiet;
    peer.remote.forget();
    if (peer.endpoint == nullptr)
        return;
    tainted_ = true;
    break_held_up(peer);
    // One that is still being connected stays until the worker goes: UCX 1.13 aborts where its own answer to the peer's
    // greeting waits on what is closed. It refers to no memory of the caller's.
    const std::array requests{
        close(std::exchange(peer.endpoint, nullptr), true),
        peer.ack_connected ? close(std::exchange(peer.ack_endpoint, nullptr), true) : ucs_status_ptr_t{}};
    const int64_t end = now_ns() + 50 * kMs;
    for (ucs_status_ptr_t request : requests)
        await_closed(request, end);
}

/// A peer that works gets what was sent to it (an acknowledgement may be the last thing); one that failed is closed by
/// force. What has not ended by then ends with the worker.
void Rail::close_all_endpoints() {
    const Quiet quiet;
    std::vector<ucs_status_ptr_t> requests;
    const int64_t patient = now_ns() + 50 * kMs;
    for (const auto &peer : peers_)
        if (peer->failure != UCS_OK && peer->endpoint != nullptr && now_ns() < patient)
            break_held_up(*peer);
    for (const auto &peer : peers_) {
        peer->remote.forget();
        const bool force = peer->failure != UCS_OK;
        requests.push_back(close(std::exchange(peer->endpoint, nullptr), force));
        requests.push_back(close(std::exchange(peer->ack_endpoint, nullptr), force));
    }
    const int64_t end = now_ns() + 100 * kMs;
    for (ucs_status_ptr_t request : requests)
        await_closed(request, end);
}

/// Null where there is nothing to wait for.
ucs_status_ptr_t Rail::close(ucp_ep_h endpoint, bool force) {
    if (endpoint == nullptr)
        return nullptr;
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = force ? UCP_EP_CLOSE_FLAG_FORCE : 0;
    const ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint, &param);
    return UCS_PTR_IS_ERR(request) ? nullptr : request;
}

void Rail::await_closed(ucs_status_ptr_t request, int64_t end_ns) {
    if (request == nullptr)
        return;
    while (ucp_request_check_status(request) == UCS_INPROGRESS && now_ns() < end_ns)
        ucp_worker_progress(context_.worker);
    ucp_request_free(request);
}

}  // namespace flx::ucx
