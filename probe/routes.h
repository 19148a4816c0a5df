/// \file routes.h
/// Whether a device of this host reaches an address of another by routers, which networks' names do not say: asked of
/// the kernel's routes, then tried by TCP as UCX would connect.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace flx::probe {

/// Whether the kernel would send what goes to `to` from the address `from`, so by the device that has it. Sends
/// nothing.
bool is_route(const std::string &from, const std::string &to);

/// Sockets that others may connect to. Nobody takes those connections: that the kernel does is what is to be known.
class Doors {
  public:
    Doors() = default;
    Doors(const Doors &) = delete;
    Doors &operator=(const Doors &) = delete;
    ~Doors();
    /// Opens a socket at an address of this host; the system chooses `port`.
    Status open(const std::string &address, uint16_t &port);

  private:
    std::vector<int> sockets_;
};

/// A connection to try.
struct Attempt {
    std::string from;  ///< it counts if the kernel chose this address for it
    std::string to;
    uint16_t port = 0;
    bool reached = false;
    std::string why;  ///< it was not
};

/// Tries all at once and takes `limit_ms` at most: less where all are answered, even if by a refusal.
void try_connections(std::vector<Attempt> &attempts, int limit_ms);

}  // namespace flx::probe
