/// \file server.h
/// The store: a thread in the process of rank 0 at which ranks meet without MPI. It gathers what the members of a group
/// tell each other and says who is missing.
///
/// A connection that has not joined as a rank leaves nothing behind: it may send one short message within a moment, and
/// few are kept at a time. A rank that joins has to be one of those that are awaited, once.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/descriptors.h"
#include "runtime/base/status.h"
#include "runtime/store/wire.h"

namespace flx::store {

class Server {
  public:
    /// As long as one is kept, the server at a place stays; afterwards as long as ranks are connected and the process
    /// runs.
    class Hold {
      public:
        Hold(std::string place, uint64_t number) : place_(std::move(place)), number_(number) {}
        ~Hold();
        Hold(const Hold &) = delete;
        Hold &operator=(const Hold &) = delete;

      private:
        std::string place_;
        uint64_t number_;
    };

    /// The process's server at that place, which is made if there is none. Thread-safe. Fault::no_store.
    static Status hold(const Place &place, std::unique_ptr<Hold> &result);

    /// `number`: no other of the process has it.
    Server(const Place &place, uint64_t number)
        : place_(place), number_(number), joins_(static_cast<size_t>(place.size)) {}
    ~Server();
    Server(const Server &) = delete;
    Server &operator=(const Server &) = delete;

  private:
    using Clock = std::chrono::steady_clock;

    /// A connection.
    struct Line {
        OwnDescriptor socket;
        Clock::time_point since = Clock::now();
        Incoming in;
        Outgoing out;
        int rank = -1;  ///< -1: it has not joined
        uint64_t process = 0;
        double deadline_s = 0;
        bool ended = false;    ///< nothing more is read
        bool refused = false;  ///< it goes when what it was told is sent
    };

    struct Member {
        int rank = 0;
        Line *line = nullptr;  ///< null: it has not come, or has gone
        uint64_t gone = 0;     ///< its place among those that went, from 1; 0: it is there
        std::optional<std::vector<std::byte>> told;
    };
    struct Group {
        std::vector<Member> members;
        uint32_t generation = 0;  ///< of a group of all ranks, from 1
        Clock::time_point since;  ///< the first member told something
        size_t told = 0;
        uint64_t gone = 0;  ///< how many members are
        bool warned = false;
    };

    Status start();
    void run();
    void turn();
    void drop_ended();
    void give_up(const char *why) noexcept;
    [[nodiscard]] bool may_end();
    [[nodiscard]] int patience_ms() const;
    void accept_some();
    void serve(Line &line);
    void receive(Line &line, const Frame &frame);
    void join(Line &line, const Join &wish);
    void make_group(Line &line, const Frame &frame);
    void gather(Line &line, const Frame &frame);
    void finish(uint64_t id, Group &group);
    void leave(uint64_t id, int rank);
    void look_for_late();
    void end(Line &line);
    void refuse(Line &line, Fault fault, const std::string &words);
    static void tell(Line &line, const Header &header, const std::string &text);
    void fail_all(uint64_t id, Group &group, Fault fault, const std::string &words);
    [[nodiscard]] Line *line_of(int rank);
    [[nodiscard]] std::vector<bool> connected() const;

    Place place_;
    uint64_t number_;
    OwnDescriptor listener_;
    OwnDescriptor wake_;
    std::list<Line> lines_;
    std::map<uint64_t, Group> groups_;
    std::vector<uint32_t> joins_;  ///< how many communicators each rank has begun
    std::string last_refused_;
    std::vector<pollfd> polled_;
    Clock::time_point shut_until_;  ///< nobody is let in
    bool said_shut_ = false;
    std::thread thread_;

    // Of the process's list of servers, with its lock.
    friend class Hold;
    friend struct Servers;
    int holds_ = 0;
    bool stop_ = false;
    bool over_ = false;
};

}  // namespace flx::store
