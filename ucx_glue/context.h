/// \file context.h
/// Opens UCX for one rail: a context that sees one device, and its worker.
#pragma once

#include <ucp/api/ucp.h>

#include <string>

#include "ucx_glue/rails.h"

namespace flx::ucx {

/// A context and its worker. Both null where nothing is open.
struct Context {
    ucp_context_h context = nullptr;
    ucp_worker_h worker = nullptr;
    std::string address;  ///< of the worker, opaque
    int events = -1;      ///< readable when something comes, after ucp_worker_arm; -1: nothing tells

    Context() = default;
    Context(const Context &) = delete;
    Context &operator=(const Context &) = delete;
    ~Context() { close(); }

    /// Settings are given here and not left to the environment: a user's UCX_NET_DEVICES or UCX_TLS, meant for MPI,
    /// must not change which device a rail is. FLX_ERR_LINK with a sentence that names the rail.
    Status open(const RailSpec &spec, const RailOptions &options);
    /// Endpoints and memory must be gone. A worker in which UCX still answers a peer that connected (and stopped, or
    /// had no core since) is given up and left to the end of the process: UCX 1.13 aborts where it is destroyed then.
    void close();

  private:
    [[nodiscard]] bool at_rest() const;
};

/// UCX's words for a status.
const char *reason(ucs_status_t status);

}  // namespace flx::ucx
