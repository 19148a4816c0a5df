#include "runtime/front/python/torch/meeting.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace flx::torch {
namespace {

/// Closes itself.
class Socket {
  public:
    Socket(int family, int type) : fd_(socket(family, type | SOCK_CLOEXEC, 0)) {}
    ~Socket() { close(fd_); }
    Socket(const Socket &) = delete;
    Socket &operator=(const Socket &) = delete;
    [[nodiscard]] int fd() const { return fd_; }

  private:
    int fd_;
};

struct Address {
    sockaddr_storage bytes{};
    socklen_t length = 0;
    [[nodiscard]] sockaddr *get() { return reinterpret_cast<sockaddr *>(&bytes); }
    [[nodiscard]] std::string text() {
        std::array<char, NI_MAXHOST> host{};
        if (getnameinfo(get(), length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0)
            throw std::runtime_error("an address of this host cannot be written");
        return host.data();
    }
};

bool look_up(const std::string &name, Address &found) {
    addrinfo *list = nullptr;
    if (getaddrinfo(name.c_str(), "1", nullptr, &list) != 0)
        return false;
    std::copy_n(reinterpret_cast<const char *>(list->ai_addr), list->ai_addrlen,
                reinterpret_cast<char *>(&found.bytes));
    found.length = list->ai_addrlen;
    freeaddrinfo(list);
    return true;
}

/// The address from which this host reaches MASTER_ADDR, by which others reach it too. Where that is the loopback
/// interface, this is the host of MASTER_ADDR, which others know by that name.
std::string own_address() {
    const char *set = std::getenv("MASTER_ADDR");
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    const std::string master = set != nullptr ? set : host.data();
    Address to;
    if (!look_up(master, to))
        throw std::runtime_error("the address of " + master + " (MASTER_ADDR, or this host's name) is not known");
    const Socket probe(to.get()->sa_family, SOCK_DGRAM);
    Address own;
    own.length = sizeof own.bytes;
    if (connect(probe.fd(), to.get(), to.length) != 0 || getsockname(probe.fd(), own.get(), &own.length) != 0)
        throw std::runtime_error("no network leads to " + master);
    const std::string text = own.text();
    return text.rfind("127.", 0) == 0 || text == "::1" ? master : text;
}

/// A port that is free at each address of this host, as FLX may listen at all of them, and, while this lives, nobody
/// else's: FLX may share it, since both allow that (SO_REUSEADDR).
class Port {
  public:
    Port() {
        for (const int family : {AF_INET6, AF_INET})
            if (take(family))
                return;
        throw std::runtime_error("no port is free on this host");
    }
    [[nodiscard]] int number() const { return number_; }

  private:
    bool take(int family) {
        const int on = 1;
        const int off = 0;
        sockaddr_storage at{};  // any address, any port
        at.ss_family = static_cast<sa_family_t>(family);
        socklen_t length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
        socket_ = std::make_unique<Socket>(family, SOCK_STREAM);
        setsockopt(socket_->fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (family == AF_INET6)
            setsockopt(socket_->fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        auto *const address = reinterpret_cast<sockaddr *>(&at);
        if (bind(socket_->fd(), address, length) != 0 || getsockname(socket_->fd(), address, &length) != 0)
            return false;
        number_ = ntohs(family == AF_INET6 ? reinterpret_cast<sockaddr_in6 *>(address)->sin6_port
                                           : reinterpret_cast<sockaddr_in *>(address)->sin_port);
        return true;
    }

    std::unique_ptr<Socket> socket_;
    int number_ = 0;
};

std::vector<uint8_t> bytes_of(const std::string &text) {
    return {text.begin(), text.end()};
}

/// Between looks into a store: short at first.
class Naps {
  public:
    explicit Naps(const Patience &patience)
        : patience_(patience), until_(std::chrono::steady_clock::now() + patience.timeout) {}
    /// False: they waited long enough.
    bool nap() {
        if (patience_.is_over() || std::chrono::steady_clock::now() > until_)
            return false;
        std::this_thread::sleep_for(nap_);
        nap_ = std::min(nap_ + nap_ / 8, kLongest);
        return true;
    }

  private:
    static constexpr std::chrono::microseconds kLongest{20'000};
    const Patience &patience_;
    std::chrono::steady_clock::time_point until_;
    std::chrono::microseconds nap_{1'000};
};

}  // namespace

std::string ranks_text(const std::vector<int> &ranks) {
    std::string text = ranks.size() == 1 ? "rank" : "ranks";
    for (size_t i = 0; i < ranks.size(); ++i)
        text += (i == 0 ? " " : ", ") + std::to_string(ranks[i]);
    return text;
}

std::vector<std::string> keys_of(const std::string &prefix, int size) {
    std::vector<std::string> keys;
    for (int rank = 0; rank < size; ++rank)
        keys.push_back(prefix + std::to_string(rank));
    return keys;
}

std::vector<int> missing(c10d::Store &store, const std::string &prefix, int size, const Patience &patience) {
    std::vector<int> absent(static_cast<size_t>(size));
    std::iota(absent.begin(), absent.end(), 0);
    Naps naps(patience);
    do {
        const auto gone = std::remove_if(absent.begin(), absent.end(),
                                         [&](int rank) { return store.check({prefix + std::to_string(rank)}); });
        absent.erase(gone, absent.end());
    } while (!absent.empty() && naps.nap());
    return absent;
}

bool told(c10d::Store &store, const std::string &key, const Patience &patience, std::string &text) {
    Naps naps(patience);
    while (!store.check({key}))
        if (!naps.nap())
            return false;
    const std::vector<uint8_t> said = store.get(key);
    text.assign(said.begin(), said.end());
    return true;
}

void forget(c10d::Store &store, const std::vector<std::string> &keys) {
    try {
        for (const std::string &key : keys)
            store.deleteKey(key);
    } catch (const std::exception &) {  // this kind of store keeps what it has
        return;
    }
}

flx_comm_t meet(c10d::Store &store, const std::string &at, int rank, int size, const Patience &patience) {
    const std::string came = at + "came/";
    const std::string where = at + "store";
    const std::string late = " within " + std::to_string(patience.timeout.count()) + " ms";
    const auto all_come = [&] {
        if (const std::vector<int> absent = missing(store, came, size, patience);
            !absent.empty() && !patience.is_over())
            throw std::runtime_error(ranks_text(absent) + " did not come to this process group of " +
                                     std::to_string(size) + late);
    };
    // Whoever of two says first whether they meet decides it.
    const std::string settled = at + "settled";
    const auto gives_up = [&] { return !patience.of_two || store.add(settled, 1) == 1; };
    store.set(came + std::to_string(rank), bytes_of("1"));
    std::string address;
    std::unique_ptr<Port> port;
    int number = 0;
    if (rank == 0) {
        try {
            all_come();
            if (patience.of_two && store.add(settled, 1) != 1)
                return nullptr;
            address = own_address();
            port = std::make_unique<Port>();
            number = port->number();
        } catch (const std::exception &thrown) {
            store.set(where, bytes_of(std::string("!rank 0 cannot make this process group: ") + thrown.what()));
            throw;
        }
        store.set(where, bytes_of(std::to_string(number) + " " + address));
    } else {
        all_come();
        std::string text;
        bool is_told = !patience.is_over() && told(store, where, patience, text);
        if (!is_told && patience.is_over()) {
            if (gives_up())
                return nullptr;
            is_told = told(store, where, {patience.timeout}, text);
        }
        if (!is_told)
            throw std::runtime_error("rank 0 did not say where this process group meets" + late);
        if (text.rfind('!', 0) == 0)
            throw std::runtime_error(text.substr(1));
        number = std::atoi(text.c_str());
        address = text.substr(text.find(' ') + 1);
    }
    flx_comm_t comm = nullptr;
    if (flx_comm_create_from_store(address.c_str(), number, rank, size, nullptr, &comm) != FLX_SUCCESS)
        throw std::runtime_error(flx_last_error());
    if (rank == 0) {  // all have come to that one, and so have read these
        std::vector<std::string> keys = keys_of(came, size);
        keys.push_back(where);
        keys.push_back(settled);
        forget(store, keys);
    }
    return comm;
}

}  // namespace flx::torch
