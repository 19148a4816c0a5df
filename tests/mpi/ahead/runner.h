/// \file runner.h
/// Carries out a random program on one thread of a rank: comes late, calls, waits in an order of its own, and looks at
/// every byte when a program would.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/mpi/ahead/engine.h"
#include "tests/mpi/random.h"

namespace flx::test::ahead {

struct Options {
    uint64_t seed = 1;
    uint64_t operations = 20'000;
    int threads = 1;
    double seconds = 0;  ///< not 0: no longer than that
    int64_t only = -1;   ///< this episode alone, `repeat` times
    uint64_t repeat = 1;
    int64_t shrink = -1;  ///< finds out which operations of this episode are needed for it to fail
    size_t longest = size_t{1} << 20;
    std::string hosts;    ///< as `--hosts` of harness.h
    std::string command;  ///< what starts the program again
};
/// Of a program's arguments; false: `wrong` says which one.
bool parse(int argc, char **argv, Options &options, std::string &wrong);
constexpr const char *kUsage =
    "--seed N        the program (FLX_TEST_SEED)\n"
    "--operations N  how many, over all threads; 25 times as many with FLX_TEST_FULL=1\n"
    "--threads N     each with communicators of its own\n"
    "--seconds S     no longer than that\n"
    "--longest B     bytes of the longest operation\n"
    "--hosts LIST    0,0,1,1: the host of each rank\n"
    "--only E        one episode, with --repeat N as often as that\n"
    "--shrink E      find the operations of an episode without which it does not fail\n";

/// What a thread does, for whoever asks while it hangs.
struct Standing {
    std::atomic<uint64_t> episode{0};
    std::atomic<uint64_t> operation{0};  ///< its place in the episode
    std::atomic<const char *> collective{"nothing"};
};

struct Outcome {
    uint64_t operations = 0;  ///< of the program, whether or not this rank took part
    uint64_t episodes = 0;
    uint64_t wrong = 0;  ///< of this rank
};

class Runner {
  public:
    /// `standing` lives longer.
    Runner(Engine &engine, const Options &options, const Choice &choice, std::vector<Group> groups, int world_rank,
           Standing &standing);

    ~Runner();

    /// To the end of the program, or the first wrong bytes on any rank.
    Outcome run();

  private:
    struct Slot;

    void carry_out(const Episode &episode, uint64_t repetition);
    void repeat(const Episode &episode);
    void shrink(Episode episode);
    [[nodiscard]] bool fails(const Episode &episode);
    void call(const Operation &operation);
    void come_late(const Operation &operation);
    void complete_some(size_t at_most);
    void completed(size_t slot);
    void look(Call &call);
    void report(const Call &call, const std::string &verdict, const std::vector<std::byte> &seen);
    [[nodiscard]] std::string whose(const Call &call, const std::vector<std::byte> &seen) const;
    void expect(Engine::Sentence sentence, const char *what);

    Engine &engine_;
    const Options options_;
    const Choice choice_;
    const std::vector<Group> groups_;
    const int world_rank_;
    Standing &standing_;
    Arena own_, shared_;
    std::vector<int> rank_in_;  ///< by group: this rank's place in it, or -1
    std::vector<Slot> slots_;
    std::vector<std::unique_ptr<Call>> grouped_;
    size_t active_ = 0;
    Random mine_{0};
    const Episode *episode_ = nullptr;
    uint64_t repetition_ = 0;
    bool quiet_ = false;
    uint64_t wrong_ = 0;
    Outcome outcome_;
};

/// All of a rank: a thread for each engine, and a sentence by rank 0 at the end. Returns what the process is to return.
/// `make` is called by the main thread. Collective over MPI_COMM_WORLD.
int run_threads(const Options &options, const Choice &choice,
                const std::function<std::unique_ptr<Engine>(const std::vector<Group> &groups)> &make);

}  // namespace flx::test::ahead
