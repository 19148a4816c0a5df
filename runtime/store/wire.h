/// \file wire.h
/// What ranks and the store in which they meet say to each other over TCP, and the sockets for that.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/descriptors.h"
#include "runtime/base/status.h"

namespace flx::store {

/// Where the store is, and who this process is among those that meet there.
struct Place {
    std::string address;  ///< a name or a number
    int port = 0;
    int rank = 0;
    int size = 1;
    double deadline_s = 30;  ///< how long to wait for ranks that do not come

    /// `10.0.0.1:29500`
    [[nodiscard]] std::string text() const { return fmt::format("{}:{}", address, port); }
};

enum class Kind : uint16_t {
    // To the store.
    join = 1,    ///< payload: Join. The first of a connection, and once for each further communicator
    group = 2,   ///< this rank is member `index` of a group; payload: the ranks of all members, uint32_t each
    gather = 3,  ///< what member `index` tells the others of the group
    leave = 4,   ///< this rank is done with a group
    // From it.
    joined = 5,    ///< `group` is that of all ranks
    refused = 6,   ///< the payload says why, `index` is the fault; then the connection ends
    gathered = 7,  ///< payload: what all members told, in their order
    failed = 8,    ///< a gathering does not come about; as refused
    late = 9       ///< the payload says on whom a gathering waits, which goes on
};

/// Before each payload. Ranks of a job have one byte order, as MPI's bytes have.
struct Header {
    uint32_t magic = kMagic;
    uint16_t version = kVersion;
    Kind kind{};
    uint32_t index = 0;
    uint32_t bytes = 0;  ///< of payload
    uint64_t group = 0;

    static constexpr uint32_t kMagic = 0x53584c46;  // "FLXS"
    static constexpr uint16_t kVersion = 1;
};
static_assert(sizeof(Header) == 24);

struct Join {
    uint32_t size = 0;
    uint32_t rank = 0;
    uint64_t process = 0;  ///< a random number: a rank that comes again may do so before its end is heard
    double deadline_s = 0;
};

struct Frame {
    Header header;
    std::vector<std::byte> payload;

    [[nodiscard]] std::string text() const { return {reinterpret_cast<const char *>(payload.data()), payload.size()}; }
};

/// Ids of groups of all ranks are smaller than those of others.
constexpr uint64_t kRootLimit = uint64_t{1} << 32;

/// The longest payload of all ranks together: what one says of itself is some kilobytes.
constexpr uint32_t kMostBytes = 1U << 30;

/// The longest payload that one of `ranks` sends. All of them can be in a group.
constexpr uint32_t most_of_one(int ranks) {
    return std::max(kMostBytes / static_cast<uint32_t>(ranks),
                    static_cast<uint32_t>(ranks) * static_cast<uint32_t>(sizeof(uint32_t)));
}

/// Bytes that came and are no whole frame yet.
class Incoming {
  public:
    enum class Ended { no, closed, foreign };

    /// Reads of what is there, without waiting, until it has `most` bytes that no frame was made of; the rest stays in
    /// the socket.
    Ended read(int fd, size_t most);
    /// Takes a whole frame out. `most`: the longest payload that is allowed. Ended::foreign: this is not FLX's.
    bool next(Frame &frame, uint32_t most, Ended &ended);
    /// The first bytes, printable, for sentences about what is no store.
    [[nodiscard]] std::string beginning() const;
    /// Bytes that no frame was made of.
    [[nodiscard]] size_t size() const { return bytes_.size() - taken_; }

  private:
    std::vector<std::byte> bytes_;
    size_t taken_ = 0;
};

/// Frames that are to be sent.
class Outgoing {
  public:
    void put(const Header &header, std::span<const std::byte> payload);
    /// A payload that goes to many is there once.
    void put(const Header &header, std::shared_ptr<const std::vector<std::byte>> payload);
    /// Sends what goes without waiting. False: the connection has ended.
    bool send_some(int fd);
    [[nodiscard]] bool empty() const { return pieces_.empty(); }

  private:
    std::deque<std::shared_ptr<const std::vector<std::byte>>> pieces_;
    size_t sent_ = 0;  ///< of the first
};

/// A socket that listens at the place's address and port. A name of this host that stands for several addresses, or for
/// the loopback interface, as Debian has a host's own name, is listened for on all interfaces, since other hosts may
/// know it by another address; `localhost` and numbers are not.
Status listen_at(const Place &place, OwnDescriptor &socket);

/// What a rank does while it waits for others, if anything, again and again.
using Meanwhile = std::function<Status()>;

/// A connection to the place, if there is one within `seconds`. `why`: what the system said otherwise, or `meanwhile`.
bool connect_to(const Place &place, double seconds, const Meanwhile &meanwhile, OwnDescriptor &socket,
                std::string &why);

/// Small messages go at once, and a host that is gone is noticed.
void tune(int fd);

/// `10.0.0.2:43210` of whom a connection leads to.
std::string peer_of(int fd);

/// `rank 2`, `ranks 2 and 5`, `ranks 0, 1, 2 and 9 more`.
std::string ranks_text(const std::vector<int> &ranks);

}  // namespace flx::store
