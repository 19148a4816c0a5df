#include "ucx_glue/context.h"

#include <net/if.h>

#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "ucx_glue/quiet.h"

namespace flx::ucx {

namespace {

bool uses(const RailSpec &spec, const char *transport) {
    return fmt::format(",{},", spec.tls).find(fmt::format(",{},", transport)) != std::string::npos;
}

/// Everything in which a rail differs from UCX's defaults, or in which the environment must not have a say. A
/// transport's own settings go without its prefix (UCX 1.13 takes `RX_SEG_SIZE` here and not `TCP_RX_SEG_SIZE`; of
/// shared memory, `MM_…`).
std::vector<std::pair<std::string, std::string>> settings(const RailSpec &spec, const RailOptions &options) {
    bool memory = spec.device == "memory";
    std::vector<std::pair<std::string, std::string>> list = {
        {"TLS", spec.tls},
        {"NET_DEVICES", memory ? "" : spec.device},
        {"SHM_DEVICES", memory ? spec.device : ""},
        {"ACC_DEVICES", ""},
        {"SELF_DEVICES", "all"},
        {"MAX_EAGER_RAILS", "1"},
        {"MAX_RNDV_RAILS", "1"},
        {"RNDV_THRESH", "inf"},  // chunks are eager; see UCP_AM_SEND_FLAG_EAGER in rail.cpp
        {"ZCOPY_THRESH", "8K"},
        {"UNIFIED_MODE", "n"},
        {"PROTO_ENABLE", "n"},
        {"KEEPALIVE_INTERVAL", "1s"},  // shared memory: looks whether the process exists
    };
    if (uses(spec, "tcp")) {
        // A chunk with its headers is one segment, received by one call and sent from the user's memory. The segments
        // that are copied into are small, and neither kind is taken from huge pages: most would stay empty.
        size_t segment = options.chunk_bytes + 1024;
        list.insert(list.end(), {
                                    {"RX_SEG_SIZE", std::to_string(segment)},
                                    {"TX_SEG_SIZE", "16K"},
                                    {"RX_BUFS_GROW", "2"},
                                    {"TX_BUFS_GROW", "4"},
                                    {"ALLOC", "mmap,heap"},
                                    {"CONN_NB", "y"},  // connecting to a host that is gone must not block
                                    {"NODELAY", "y"},
                                    {"KEEPIDLE", "2s"},   // answered by the peer's kernel: a rank that computes
                                    {"KEEPINTVL", "1s"},  // for an hour is not a lost one
                                    {"KEEPCNT", "5"},
                                });
    }
    if (uses(spec, "posix") || uses(spec, "sysv"))
        list.insert(list.end(), {{"MM_ERROR_HANDLING", "y"}, {"MM_RX_BUFS_GROW", "64"}});
    return list;
}

}  // namespace

const char *reason(ucs_status_t status) {
    return ucs_status_string(status);
}

Status Context::open(const RailSpec &spec, const RailOptions &options) {
    install_quiet();
    const Quiet quiet;
    if (spec.tls == "tcp" && if_nametoindex(spec.device.c_str()) == 0)
        return fail(Fault::no_such_device,
                    "rail {}: there is no network device {}; FLX_RAILS may name those that `ip link` lists", spec.name,
                    spec.device);

    // A prefix of FLX's own keeps UCX from warning about variables that the user set for MPI.
    ucp_config_t *config = nullptr;
    ucs_status_t status = ucp_config_read("FLX", nullptr, &config);
    if (status != UCS_OK)
        return fail(Fault::rail_not_opened, "rail {}: UCX cannot read its configuration: {}", spec.name,
                    reason(status));
    for (const auto &[name, value] : settings(spec, options)) {
        status = ucp_config_modify(config, name.c_str(), value.c_str());
        if (status != UCS_OK) {
            ucp_config_release(config);
            return fail(Fault::rail_not_opened, "rail {}: UCX does not accept {}={}: {}", spec.name, name, value,
                        reason(status));
        }
    }
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
    // TCP waits for events anyway. Where memory is polled, a sender would have to signal each message.
    const bool wakes = spec.tls == "tcp";
    params.features = UCP_FEATURE_AM | (spec.rma ? UCP_FEATURE_RMA : 0) | (wakes ? UCP_FEATURE_WAKEUP : 0);
    std::string name = "flx-" + spec.name;
    params.name = name.c_str();
    status = ucp_init(&params, config, &context);
    ucp_config_release(config);
    if (status != UCS_OK) {
        context = nullptr;
        return fail(Fault::rail_not_opened, "rail {}: UCX cannot open device {} with transports {}: {}", spec.name,
                    spec.device, spec.tls, reason(status));
    }

    ucp_worker_params_t worker_params{};
    worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT;
    worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // the guard thread comes too, one at a time
    worker_params.am_alignment = 64;
    status = ucp_worker_create(context, &worker_params, &worker);
    if (status != UCS_OK) {
        worker = nullptr;
        close();
        return fail(Fault::rail_not_opened, "rail {}: UCX cannot make a worker on device {}: {}", spec.name,
                    spec.device, reason(status));
    }
    ucp_address_t *bytes = nullptr;
    size_t length = 0;
    status = ucp_worker_get_address(worker, &bytes, &length);
    if (status != UCS_OK) {
        close();
        return fail(Fault::rail_not_opened, "rail {}: UCX gives no address for device {}: {}", spec.name, spec.device,
                    reason(status));
    }
    address.assign(reinterpret_cast<const char *>(bytes), length);
    ucp_worker_release_address(worker, bytes);
    if (wakes && ucp_worker_get_efd(worker, &events) != UCS_OK)
        events = -1;
    return {};
}

bool Context::at_rest() const {
    constexpr int64_t kPatienceNs = 100'000'000;
    ucp_request_param_t param{};
    const ucs_status_ptr_t request = ucp_worker_flush_nbx(worker, &param);
    if (!UCS_PTR_IS_PTR(request))
        return true;
    const int64_t end = now_ns() + kPatienceNs;
    while (ucp_request_check_status(request) == UCS_INPROGRESS && now_ns() < end)
        ucp_worker_progress(worker);
    const bool rests = ucp_request_check_status(request) != UCS_INPROGRESS;
    ucp_request_free(request);
    return rests;
}

void Context::close() {
    const Quiet quiet;
    events = -1;
    if (worker != nullptr && !at_rest()) {
        log().debug("a rail's worker is left as it is: a peer that connected to it does not answer");
        worker = nullptr;
        context = nullptr;
    }
    if (worker != nullptr)
        ucp_worker_destroy(std::exchange(worker, nullptr));
    if (context != nullptr)
        ucp_cleanup(std::exchange(context, nullptr));
}

}  // namespace flx::ucx
