#include <fmt/format.h>

#include <array>
#include <cstring>
#include <deque>
#include <memory>

#include "runtime/shm/ways/channel.h"
#include "tests/proof/interleave/programs.h"

namespace flx::shm {

// In place of runtime/shm/ways/peer_memory.cpp: what the kernel copies lies in the arena, too.
Status PeerMemory::read(int, void *to, uint64_t address, size_t bytes) const {
    std::memcpy(to, reinterpret_cast<const void *>(address), bytes);
    return {};
}
bool PeerMemory::reachable(const void *, size_t) {
    return true;
}

}  // namespace flx::shm

namespace flx::interleave {
namespace {

using shm::Channel;
using shm::ChannelShape;

constexpr size_t kExposedAt = size_t{64} << 10;
constexpr size_t kExposedBytes = 1024;  ///< place of each

enum class Way : uint8_t { brief, slot, exposed };
constexpr const char *kWays[] = {"short", "slot", "exposed"};
constexpr size_t kBytes[] = {40, 150, 150};

struct Case {
    int ranks;
    bool both;    ///< both ranks send; else rank 0 does
    size_t hold;  ///< so many arrivals are held before one is released
    bool newest;  ///< that one is the last that came; else the first
    std::vector<Way> messages;
};

ChannelShape shape() {
    return {.ranks = 2, .slots = 2, .slot_bytes = 256, .shorts = 4};
}

class Rank {
  public:
    Rank(const Case &of, int rank) : of_(of), rank_(rank), channel_(arena(), shape(), rank, {0, 1}) {
        channel_.fetch_through(reinterpret_cast<shm::PeerMemory *>(arena()));  // read() looks at nothing of it
    }

    void run() {
        const size_t count = of_.messages.size();
        for (size_t number = 0; number < count; ++number) {
            if (of_.both || rank_ == 0)
                send(number);
            if (of_.both || rank_ == 1)
                receive(number);
        }
        begin_operation("release what is held");
        while (!held_.empty())
            release();
        if (of_.both || rank_ == 0)
            complete(0);
    }

  private:
    [[nodiscard]] std::byte *exposed(size_t number) const {
        return arena() + kExposedAt + (number * 2 + rank_) * kExposedBytes;
    }
    [[nodiscard]] std::vector<uint8_t> content(size_t number, int from) const {
        std::vector<uint8_t> bytes(kBytes[static_cast<size_t>(of_.messages[number])]);
        for (size_t at = 0; at < bytes.size(); ++at)
            bytes[at] = given(number, from, at);
        return bytes;
    }

    void send(size_t number) {
        const Way way = of_.messages[number];
        begin_operation(fmt::format("send {}: {}", number + 1, kWays[static_cast<size_t>(way)]));
        const std::vector<uint8_t> data = content(number, rank_);
        ChunkHeader header{};
        header.sequence = number;
        header.bytes = static_cast<uint32_t>(data.size());
        const void *from = data.data();
        if (way == Way::exposed) {
            std::memcpy(exposed(number), data.data(), data.size());
            from = exposed(number);
        }
        Waiter waiter(policy_, watch_);
        const auto try_it = [&] {
            return way == Way::exposed ? channel_.expose(1 - rank_, header, from)
                                       : channel_.send(1 - rank_, header, from);
        };
        while (try_it() == SendResult::busy)
            if (!waiter.pause().ok())
                return;
        waiter.moved();
        open_ += way == Way::exposed ? 1 : 0;
    }

    /// Until so many exposed messages are still open: what was exposed is the program's again.
    void complete(size_t open) {
        begin_operation("wait for exposed messages");
        Waiter waiter(policy_, watch_);
        while (open_ > open) {
            Completion completion;
            if (!channel_.completed(completion)) {
                if (!waiter.pause().ok())
                    return;
                continue;
            }
            waiter.moved();
            --open_;
            std::memset(exposed(completion.header.sequence), 0xee, completion.header.bytes);
        }
    }

    void receive(size_t number) {
        begin_operation(fmt::format("receive {}", number + 1));
        Arrival arrival;
        Waiter waiter(policy_, watch_);
        while (!channel_.receive(1 - rank_, arrival))
            if (!waiter.pause().ok())
                return;
        waiter.moved();
        const std::vector<uint8_t> expected = content(number, 1 - rank_);
        if (arrival.header.sequence != number || arrival.header.bytes != expected.size())
            wrong("wrong message", fmt::format("rank {} received message {} as message {}", rank_,
                                               arrival.header.sequence + 1, number + 1));
        std::vector<uint8_t> data(expected.size());
        if (arrival.data == nullptr) {
            const Status status = channel_.fetch(arrival, 0, data.data(), data.size());
            if (!status.ok())
                wrong("error", status.sentence());
        } else {
            std::memcpy(data.data(), arrival.data, data.size());
        }
        if (data != expected)
            wrong("wrong bytes", fmt::format("rank {}, message {}", rank_, number + 1));
        held_.push_back(arrival);
        if (held_.size() > of_.hold)  // who held the oldest for good would keep the sender out
            while (!held_.empty())
                release();
    }

    void release() {
        const Arrival arrival = of_.newest ? held_.back() : held_.front();
        if (of_.newest)
            held_.pop_back();
        else
            held_.pop_front();
        // What it is released for, the sender's next message, must not be there yet.
        if (arrival.data != nullptr) {
            std::vector<uint8_t> data(arrival.header.bytes);
            std::memcpy(data.data(), arrival.data, data.size());
            if (data != content(arrival.header.sequence, 1 - rank_))
                wrong("wrong bytes",
                      fmt::format("rank {}, message {} while it was held", rank_, arrival.header.sequence + 1));
        }
        channel_.release(arrival);
    }

    const Case &of_;
    int rank_;
    Channel channel_;
    WaitPolicy policy_{.spins = 0};
    NoWatch watch_;
    std::deque<Arrival> held_;
    size_t open_ = 0;
};

std::string place_of(size_t offset) {
    if (offset >= kExposedAt)
        return fmt::format("what rank {} exposes as message {}", (offset - kExposedAt) / kExposedBytes % 2,
                           (offset - kExposedAt) / kExposedBytes / 2 + 1);
    const size_t ring = shape().ring_bytes();
    const size_t within = offset % ring;
    if (within < shape().shorts_bytes())
        return within < shm::kPair ? fmt::format("how many of rank {}'s short slots are free", offset / ring)
                                   : fmt::format("rank {}'s short slot {} + {}", offset / ring, within / shm::kPair - 1,
                                                 within % shm::kPair);
    return fmt::format("rank {}'s slot {} + {}", offset / ring, (within - shape().shorts_bytes()) / 384,
                       (within - shape().shorts_bytes()) % 384);
}

/// All sequences of `length` messages, each way to hold and to release them.
Family sequences(std::string name, bool both, size_t length, size_t most_held, bool full = false) {
    size_t programs = (2 * most_held + 1);
    for (size_t i = 0; i < length; ++i)
        programs *= std::size(kWays);
    const auto case_of = [=](size_t number) {
        Case made{.ranks = 2, .both = both, .hold = number % (2 * most_held + 1), .newest = false, .messages = {}};
        made.newest = made.hold > most_held;
        made.hold -= made.newest ? most_held : 0;
        number /= 2 * most_held + 1;
        for (size_t i = 0; i < length; ++i, number /= std::size(kWays))
            made.messages.push_back(static_cast<Way>(number % std::size(kWays)));
        return made;
    };
    return {std::move(name),
            2,
            programs,
            [=](size_t number) { return program_of<Rank>(case_of(number), place_of); },
            [=](size_t number) {
                const Case made = case_of(number);
                std::string text;
                for (const Way way : made.messages)
                    text += (text.empty() ? "" : ", ") + std::string(kWays[static_cast<size_t>(way)]);
                return fmt::format("{}, {} held, the {} released first", text, made.hold,
                                   made.newest ? "newest" : "oldest");
            },
            full};
}

}  // namespace

std::vector<Family> channel_families() {
    std::vector<Family> families;
    families.push_back(sequences("channel, 2 ranks: three messages", false, 3, 1));
    families.push_back(sequences("channel, 2 ranks: five messages", false, 5, 1));
    families.push_back(sequences("channel, 2 ranks: both send two", true, 2, 0));
    families.push_back(sequences("channel, 2 ranks: both send three", true, 3, 0, true));
    return families;
}

}  // namespace flx::interleave
