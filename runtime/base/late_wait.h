/// \file late_wait.h
/// When one wait has become so long that it is worth a word, for who looks at it now and then. One thread at a time.
#pragma once

#include <cstdint>

namespace flx {

class LateWait {
  public:
    /// `awaited`: whom a wait is for at this moment; negative: nobody. True once in a wait for the same one without a
    /// gap, when it has gone on for `after_ns`.
    bool became_late(int awaited, int64_t now_ns, int64_t after_ns) {
        if (awaited != awaited_) {
            awaited_ = awaited;
            began_ns_ = now_ns;
            said_ = false;
        }
        if (awaited < 0 || said_ || now_ns - began_ns_ < after_ns)
            return false;
        return said_ = true;
    }
    [[nodiscard]] int64_t began_ns() const { return began_ns_; }

  private:
    int awaited_ = -1;
    int64_t began_ns_ = 0;
    bool said_ = false;
};

}  // namespace flx
