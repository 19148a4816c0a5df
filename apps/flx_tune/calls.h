/// \file calls.h
/// MPI's collectives as a program that knows nothing of FLX calls them, on MPI_COMM_WORLD.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace flx::tune {

/// Those that there are.
[[nodiscard]] std::vector<std::string> names();

/// Buffers for calls of up to so many bytes over all ranks, which it owns.
class Calls {
  public:
    explicit Calls(size_t largest);
    /// Calls the collective of that name, of names(), with `bytes` over all ranks, or a little less: every rank has the
    /// same part, in whole doubles, but at least one. Collective.
    void call(const std::string &name, size_t bytes);

  private:
    int ranks_ = 1;
    std::vector<double> in_;
    std::vector<double> out_;
    std::vector<int> counts_;
    std::vector<int> offsets_;
};

}  // namespace flx::tune
