/// \file late_wait.h
/// When a wait for one of several has become so long that it is worth a word, for who looks now and then at whom is
/// waited for. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace flx {

class LateWait {
  public:
    /// Who is waited for is not named in every look, as others may be as well: only after so long is it another wait.
    static constexpr int64_t kGapNs = 2'000'000'000;

    /// `awaited` is waited for at this moment; negative: nobody, which ends all waits if it is so twice in a row. True
    /// once in a wait for it, when it has gone on for `after_ns`.
    bool became_late(int awaited, int64_t now_ns, int64_t after_ns) {
        nobody_ = awaited < 0 ? nobody_ + 1 : 0;
        if (nobody_ > 1)
            waits_.clear();
        if (awaited < 0)
            return false;
        Wait &wait = of(awaited);
        if (!wait.known || now_ns - wait.seen_ns > kGapNs)
            wait = {true, false, now_ns, now_ns};
        wait.seen_ns = now_ns;
        if (wait.said || now_ns - wait.began_ns < after_ns)
            return false;
        return wait.said = true;
    }
    [[nodiscard]] int64_t began_ns(int awaited) { return of(awaited).began_ns; }

  private:
    struct Wait {
        bool known = false;
        bool said = false;
        int64_t began_ns = 0;
        int64_t seen_ns = 0;
    };
    Wait &of(int awaited) {
        const auto place = static_cast<size_t>(awaited);
        if (place >= waits_.size())
            waits_.resize(place + 1);
        return waits_[place];
    }

    std::vector<Wait> waits_;
    int nobody_ = 0;
};

}  // namespace flx
