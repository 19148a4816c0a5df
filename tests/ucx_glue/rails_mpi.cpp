// Rails between processes. Without arguments: random traffic between all pairs of ranks, over TCP and by puts at once,
// on two communicators. With --measure: what a rail delivers between ranks 0 and 1 (printed, not judged).
#include <fmt/format.h>
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>

#include "tests/ucx_glue/traffic.h"
#include "ucx_glue/rails.h"

namespace {

using namespace flx;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::vector<std::string> allgather(const std::string &mine, int size) {
    int bytes = static_cast<int>(mine.size());
    std::vector<int> counts(size);
    MPI_Allgather(&bytes, 1, MPI_INT, counts.data(), 1, MPI_INT, MPI_COMM_WORLD);
    std::vector<int> starts(size + 1);
    for (int i = 0; i < size; ++i)
        starts[i + 1] = starts[i] + counts[i];
    std::string all(starts[size], '\0');
    MPI_Allgatherv(mine.data(), bytes, MPI_CHAR, all.data(), counts.data(), starts.data(), MPI_CHAR, MPI_COMM_WORLD);
    std::vector<std::string> texts(size);
    for (int i = 0; i < size; ++i)
        texts[i] = all.substr(starts[i], counts[i]);
    return texts;
}

/// Proportional set size of this process, KiB.
long pss() {
    std::ifstream file("/proc/self/smaps_rollup");
    std::string word;
    while (file >> word) {
        if (word == "Pss:") {
            long kib = 0;
            file >> kib;
            return kib;
        }
    }
    return 0;
}

struct Ranks {
    int rank = 0;
    int size = 0;
    std::unique_ptr<ucx::Rails> rails;

    void open(const std::vector<ucx::RailSpec> &specs, const ucx::RailOptions &options) {
        rails = ucx::Rails::open(specs, 100 + rank, options);
        for (int rail = 0; rail < rails->count(); ++rail) {
            auto addresses = allgather(rails->address(rail), size);
            for (int peer = 0; peer < size; ++peer)
                if (peer != rank && !rails->connect(rail, peer, 100 + peer, addresses[peer]).ok())
                    MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
    std::unique_ptr<Link> link(int rail, uint32_t comm) const {
        std::vector<int> processes(size);
        for (int peer = 0; peer < size; ++peer)
            processes[peer] = peer == rank ? -1 : peer;
        return rails->link(rail, comm, processes, 30);
    }
    /// As a collective call would end: nothing that peers wait for is left here.
    void finish() const {
        for (auto begin = Clock::now(); !rails->flushed() && seconds_since(begin) < 5;)
            rails->progress();
    }
};

int check_traffic(Ranks &ranks) {
    ucx::RailOptions options;
    options.window_bytes = 512 << 10;
    ranks.open({{"lo", "lo", "tcp", false}, {"ucx-shm", "memory", "posix,cma", true}}, options);
    int errors = ranks.rails->count() == 2 ? 0 : 1;

    struct Stream {
        std::unique_ptr<Link> link;
        std::deque<test::Traffic> peers;
    };
    std::vector<Stream> streams;
    for (uint32_t comm : {4u, 6u}) {
        for (int rail = 0; rail < ranks.rails->count(); ++rail) {
            // The second communicator's links are made late on odd ranks: chunks for it come before.
            if (comm == 6 && ranks.rank % 2 == 1)
                usleep(20000);
            Stream &stream = streams.emplace_back();
            stream.link = ranks.link(rail, comm);
            for (int peer = 0; peer < ranks.size; ++peer)
                if (peer != ranks.rank)
                    stream.peers.emplace_back(*stream.link, comm, ranks.rank, peer,
                                              test::Traffic::Options{.chunks = 150, .window = options.window_bytes});
        }
    }
    auto begin = Clock::now();
    bool all_done = false;
    while (!all_done && seconds_since(begin) < 60) {
        all_done = true;
        for (Stream &stream : streams) {
            for (test::Traffic &traffic : stream.peers) {
                traffic.step();
                for (const Completion &completion : traffic.take_foreign())
                    for (test::Traffic &other : stream.peers)
                        other.complete_if_mine(completion);
                all_done &= traffic.done();
            }
            stream.link->progress();
        }
        sched_yield();
    }
    ranks.finish();
    uint64_t bytes = 0;
    for (Stream &stream : streams) {
        for (test::Traffic &traffic : stream.peers) {
            traffic.check_end();
            bytes += traffic.bytes();
            if (traffic.errors() == 0 && traffic.done())
                continue;
            ++errors;
            fmt::print(stderr, "rank {}, rail {}: {}; {}\n", ranks.rank, stream.link->name(), traffic.first_error(),
                       traffic.state());
        }
    }
    for (const auto &[name, sentence] : ranks.rails->problems()) {
        ++errors;
        fmt::print(stderr, "rank {}, rail {}: {}\n", ranks.rank, name, sentence);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (ranks.rank == 0)
        fmt::print("rank 0 sent {} bytes in {:.3f} s\n", bytes, seconds_since(begin));
    streams.clear();
    begin = Clock::now();
    ranks.rails.reset();
    double closing = seconds_since(begin);
    if (closing > 1.0) {
        ++errors;
        fmt::print(stderr, "rank {}: closing took {:.3f} s\n", ranks.rank, closing);
    }
    return errors;
}

/// Both ranks send `count` chunks of `bytes` to each other at once; seconds.
double stream(Link &link, int peer, uint32_t comm, size_t bytes, int count) {
    std::vector<std::byte> data(bytes * 8);
    ChunkHeader header{};
    header.comm = comm;
    header.cells = 1;
    header.bytes = static_cast<uint32_t>(bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    auto begin = Clock::now();
    int sent = 0;
    int received = 0;
    int completed = 0;
    while (sent < count || received < count || link.outstanding() > 0) {
        bool moved = false;
        while (sent < count) {
            header.block = static_cast<uint32_t>(sent);
            SendResult result = link.send(peer, header, data.data() + (sent % 8) * bytes);
            if (result != SendResult::copied && result != SendResult::in_flight)
                break;
            ++sent;
            moved = true;
        }
        Arrival arrival;
        while (link.receive(peer, arrival)) {
            ++received;
            link.release(arrival);
            moved = true;
        }
        Completion completion;
        while (link.completed(completion))
            ++completed;
        if (!link.progress() && !moved)
            sched_yield();
    }
    return seconds_since(begin);
}

void measure(Ranks &ranks) {
    long before = pss();
    auto begin = Clock::now();
    ranks.open({{"lo", "lo", "tcp", false}}, {});
    double tcp = seconds_since(begin);
    long with_tcp = pss();
    ranks.rails.reset();
    begin = Clock::now();
    std::vector<ucx::RailSpec> specs = {{"lo", "lo", "tcp", false}, {"ucx-shm", "memory", "posix,cma", true}};
    auto second = ucx::Rails::open({specs.data() + 1, 1}, 900 + ranks.rank, {});
    double shm = seconds_since(begin);
    second.reset();
    if (ranks.rank == 0)
        fmt::print(
            "first rail (UCX loaded by it): {:.1f} ms with exchange of addresses, {} KiB; shared memory: {:.1f} "
            "ms\n",
            tcp * 1e3, with_tcp - before, shm * 1e3);
    for (size_t kib : {64u, 128u, 256u}) {
        ucx::RailOptions options;
        options.chunk_bytes = kib << 10;
        long empty = pss();
        ranks.open(specs, options);
        for (int rail = 0; rail < ranks.rails->count() && ranks.rank < 2; ++rail) {
            auto link = ranks.link(rail, 1 + rail);
            int peer = 1 - ranks.rank;
            int count = static_cast<int>((256u << 10) / kib);
            stream(*link, peer, 1 + rail, kib << 10, count / 8);
            double seconds = stream(*link, peer, 1 + rail, kib << 10, count);
            constexpr int kTurns = 2000;
            double mean = 0;
            std::byte ball[8]{};
            ChunkHeader header{};
            header.comm = static_cast<uint32_t>(1 + rail);
            header.cells = 1;
            header.bytes = sizeof ball;
            MPI_Barrier(MPI_COMM_WORLD);
            begin = Clock::now();
            for (int turn = 0; turn < 2 * kTurns; ++turn) {
                if (turn % 2 == ranks.rank) {
                    while (link->send(peer, header, ball) != SendResult::copied)
                        link->progress();
                } else {
                    Arrival arrival;
                    while (!link->receive(peer, arrival))
                        if (!link->progress())
                            sched_yield();
                    link->release(arrival);
                }
            }
            mean = seconds_since(begin) / (2 * kTurns);
            ranks.finish();
            MPI_Barrier(MPI_COMM_WORLD);
            if (ranks.rank == 0)
                fmt::print(
                    "{:8} chunks of {:3} KiB both ways: {:6.2f} GB/s each way; 8 B one way: {:.1f} us; rails "
                    "so far {} KiB\n",
                    link->name(), kib, 256.0 * (1 << 20) / seconds / 1e9, mean * 1e6, pss() - empty);
        }
        ranks.rails.reset();
    }
}

}  // namespace

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    Ranks ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &ranks.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks.size);
    int errors = 0;
    if (argc == 2 && std::strcmp(argv[1], "--measure") == 0) {
        if (ranks.size == 2)
            measure(ranks);
        else
            errors = 1;
    } else {
        errors = check_traffic(ranks);
    }
    int all = 0;
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return all == 0 ? 0 : 1;
}
