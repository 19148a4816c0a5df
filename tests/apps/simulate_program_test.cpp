#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "apps/flx_simulate/machine.h"
#include "apps/flx_simulate/program.h"

namespace flx::simulate {
namespace {

using algorithms::Collective;

Machine machine_of(int hosts, int ranks) {
    Machine machine;
    EXPECT_EQ(parse_machine("hosts = " + std::to_string(hosts) + "\nranks = " + std::to_string(ranks), "m", machine),
              "");
    return machine;
}

/// A trace as FLX writes it, of events that are given.
class Trace {
  public:
    explicit Trace(int ranks) : ranks_(ranks) {}
    /// Communicator `id` of the program's ranks `members`.
    void communicator(int id, const std::vector<int> &members) {
        for (size_t i = 0; i < members.size(); ++i)
            line(members[i], R"("ph":"M","name":"communicator","tid":)" + std::to_string(id) +
                                 R"(,"args":{"communicator":)" + std::to_string(id) + R"(,"rank":)" +
                                 std::to_string(i) + R"(,"size":)" + std::to_string(members.size()) +
                                 R"(,"hosts":1,"first_uid":"a)" + std::to_string(members[0]) + R"("})");
    }
    void call(int rank, int id, const std::string &name, const std::string &arguments,
              const std::string &category = "call") {
        line(rank, R"("ph":"X","cat":")" + category + R"(","name":")" + name + R"(","ts":1,"dur":20,"tid":)" +
                       std::to_string(id) + R"(,"args":{"way":"fused")" + arguments + "}");
    }
    void call_of_all(int id, const std::string &name, uint64_t bytes) {
        for (int rank = 0; rank < ranks_; ++rank)
            call(rank, id, name, R"(,"bytes":)" + std::to_string(bytes));
    }
    void line(int rank, const std::string &members) {
        events_ += "{\"pid\":" + std::to_string(rank) + "," + members + "},\n";
    }
    [[nodiscard]] std::string text() const {
        return R"({"displayTimeUnit":"ns","otherData":{"flx":"0.4.0","ranks":)" + std::to_string(ranks_) +
               R"(,"notes":["2 calls are not in it"]},"traceEvents":[)"
               "\n" +
               events_ +
               R"({"ph":"M","name":"end","pid":0})"
               "\n]}\n";
    }
    [[nodiscard]] Program read() const {
        std::istringstream stream(text());
        Program program;
        EXPECT_EQ(read_program(stream, "t.json", program), "");
        return program;
    }

  private:
    int ranks_;
    std::string events_;
};

ProgramTimes run(const Machine &machine, const Program &program) {
    size_t last = 0;
    size_t all = 0;
    ProgramTimes times = run_program(machine, program, [&](size_t done, size_t of) {
        last = done;
        all = of;
    });
    EXPECT_EQ(last, all);
    return times;
}

const ProgramRow *row_of(const ProgramTimes &times, Collective collective, size_t traced_bytes, bool waits = true) {
    for (const ProgramRow &row : times.rows)
        if (row.kind.collective == collective && row.kind.bytes == traced_bytes && row.kind.waits == waits)
            return &row;
    return nullptr;
}

TEST(SimulatedProgram, CountsACallOfAllRanksOnce) {
    Trace trace(4);
    trace.communicator(1, {0, 1, 2, 3});
    trace.communicator(2, {0, 1, 2, 3});  // a duplicate
    for (int i = 0; i < 3; ++i)
        trace.call_of_all(1, "allreduce", 4096);
    trace.call_of_all(2, "allreduce", 4096);
    trace.call_of_all(1, "barrier", 0);
    const Machine machine = machine_of(2, 2);
    const Program program = trace.read();
    EXPECT_EQ(program.ranks, 4);
    EXPECT_EQ(program.notes, std::vector<std::string>{"2 calls are not in it"});
    const ProgramTimes times = run(machine, program);
    ASSERT_EQ(times.rows.size(), 2);
    EXPECT_TRUE(times.left_out.empty());
    const ProgramRow *allreduce = row_of(times, Collective::allreduce, 4096);
    ASSERT_NE(allreduce, nullptr);
    EXPECT_EQ(allreduce->sum.calls, 4);
    EXPECT_EQ(allreduce->sum.traced_us, 80);
    const Cell alone = Experiment(machine, Collective::allreduce).cell(4096);
    EXPECT_EQ(allreduce->cell.choice().name, alone.choice().name);
    EXPECT_EQ(allreduce->cell.choice().ns, alone.choice().ns);
    const Cell barrier = Experiment(machine, Collective::barrier).cell(8);
    EXPECT_EQ(times.calls, 5);
    EXPECT_DOUBLE_EQ(times.ns, 4 * alone.choice().ns + barrier.choice().ns);
    EXPECT_DOUBLE_EQ(times.best_ns, 4 * alone.best().ns + barrier.best().ns);
}

/// Each rank calls with the same arguments as in the trace.
TEST(SimulatedProgram, OfOtherNumbersOfRanksKeepsVectorsAndBlocks) {
    Trace trace(4);
    trace.communicator(1, {0, 1, 2, 3});
    trace.call_of_all(1, "allreduce", 4096);
    for (const char *name :
         {"allgather", "allgatherv", "reduce_scatter_block", "reduce_scatter", "alltoall", "gather", "scatter"})
        trace.call_of_all(1, name, 4096);
    const ProgramTimes times = run(machine_of(8, 2), trace.read());
    ASSERT_EQ(times.rows.size(), 8);
    for (const ProgramRow &row : times.rows) {
        EXPECT_EQ(row.cell.bytes, row.kind.collective == Collective::allreduce ? 4096 : 4 * 4096)
            << algorithms::name_of(row.kind.collective);
        EXPECT_EQ(row.ranks, 16);
        EXPECT_EQ(row.hosts, 8);
    }
    EXPECT_EQ(row_of(times, Collective::allgatherv, 4096)->cell.choice().ns,
              row_of(times, Collective::allgather, 4096)->cell.choice().ns)
        << "of equal blocks";
}

TEST(SimulatedProgram, PutsPartsOfTheRanksWhereTheyAre) {
    Trace trace(8);
    trace.communicator(1, {0, 1, 2, 3, 4, 5, 6, 7});
    trace.communicator(2, {0, 2, 4, 6});  // one on each host
    trace.communicator(3, {0, 1});        // one host's
    trace.communicator(4, {0, 1, 2});     // two of one host, one of another
    trace.communicator(5, {3});
    for (const int id : {2, 3, 4})
        trace.call(0, id, "allreduce", R"(,"bytes":64)");
    trace.call(3, 5, "allreduce", R"(,"bytes":64)");
    const Program program = trace.read();
    const ProgramTimes times = run(machine_of(4, 2), program);
    ASSERT_EQ(times.rows.size(), 1);
    EXPECT_EQ(times.rows[0].ranks, 4);
    EXPECT_EQ(times.rows[0].hosts, 4);
    EXPECT_EQ(times.rows[0].cell.choice().ns, Experiment(machine_of(4, 1), Collective::allreduce).cell(64).choice().ns);
    const std::map<std::string, uint64_t> left_out = {{"on parts of one host's ranks, of which there is no model", 1},
                                                      {"on different numbers of ranks of each host", 1},
                                                      {"of one rank alone", 1}};
    EXPECT_EQ(times.left_out, left_out);
    // Where these ranks would be on another machine nobody knows.
    const ProgramTimes other = run(machine_of(16, 2), program);
    EXPECT_TRUE(other.rows.empty());
    EXPECT_EQ(other.left_out.at("on parts of the ranks, as the machine has another number of ranks than the program"),
              3);
}

TEST(SimulatedProgram, NamesWhatItLeavesOut) {
    Trace trace(2);
    trace.communicator(1, {0, 1});
    trace.call_of_all(1, "allreduce", 64);
    trace.call_of_all(1, "allreduce", 0);
    trace.call_of_all(1, "alltoallv", 0);
    trace.call_of_all(1, "flx_comm_free", 0);  // it moves nothing
    trace.call(0, 1, "messages", R"(,"bytes":64,"peer":1)");
    trace.call(1, 1, "messages", R"(,"bytes":64,"peer":0)");
    trace.call(0, 1, "bcast", R"(,"bytes":64,"error":"FLX_ERR_PEER")");
    trace.call(0, 1, "bcast", R"(,"bytes":64,"unfinished":true)");
    trace.call(0, 1, "bcast", R"(,"bytes":64)", "gpu");
    trace.line(0, R"("ph":"b","cat":"nonblocking","id":"1","name":"bcast","ts":1,"tid":1,)"
                  R"("args":{"communicator":1,"gpu_call":3,"way":"GPUs","bytes":64})");
    trace.call(0, 9, "bcast", R"(,"bytes":64)");
    trace.call(0, 1, "allsort", R"(,"bytes":64)");
    trace.line(0, R"("ph":"X","cat":"call","name":"bcast","ts":1,"dur":2,"tid":7,"args":{"way":"served by MPI"})");
    const ProgramTimes times = run(machine_of(2, 1), trace.read());
    EXPECT_EQ(times.calls, 1);
    const std::map<std::string, uint64_t> left_out = {{"of no bytes", 1},
                                                      {"alltoallv, of which the trace has no lengths", 1},
                                                      {"messages of two ranks, on all ranks", 2},
                                                      {"that ended with an error", 1},
                                                      {"that did not end", 1},
                                                      {"on GPU memory", 2},
                                                      {"on communicators that the trace lacks", 1},
                                                      {"of other names than collectives have", 1},
                                                      {"served by MPI, on all ranks", 1}};
    EXPECT_EQ(times.left_out, left_out);
    const std::string text = program_text(machine_of(2, 1), trace.read(), times);
    for (const auto &[why, calls] : left_out)
        EXPECT_NE(text.find("left out, " + why + ": " + std::to_string(calls) + "\n"), std::string::npos) << text;
}

/// They go step by step, and never stage by stage.
TEST(SimulatedProgram, HasCallsThatDoNotBlock) {
    Trace trace(16);
    std::vector<int> all(16);
    for (int rank = 0; rank < 16; ++rank)
        all[static_cast<size_t>(rank)] = rank;
    trace.communicator(1, all);
    trace.call_of_all(1, "allreduce", 64);
    for (int rank = 0; rank < 16; ++rank)
        trace.line(rank, R"("ph":"b","cat":"nonblocking","id":"1","name":"allreduce","ts":1,"tid":1,)"
                         R"("args":{"bytes":64})");
    const ProgramTimes times = run(machine_of(4, 4), trace.read());
    ASSERT_EQ(times.rows.size(), 2);
    const ProgramRow *blocking = row_of(times, Collective::allreduce, 64);
    const ProgramRow *other = row_of(times, Collective::allreduce, 64, false);
    ASSERT_TRUE(blocking != nullptr && other != nullptr);
    EXPECT_EQ(other->sum.calls, 1);
    const auto staged = [](const ProgramRow &row) {
        return std::ranges::any_of(row.cell.outcomes, [](const Outcome &one) { return !one.walked; });
    };
    EXPECT_TRUE(staged(*blocking));
    EXPECT_FALSE(staged(*other));
    EXPECT_GE(other->cell.choice().ns, blocking->cell.choice().ns);
}

TEST(SimulatedProgram, SaysWhatIsWrongInATrace) {
    std::istringstream stream("{\"traceEvents\":[\n{\"ph\":\"X\",\n]}\n");
    Program program;
    const std::string problem = read_program(stream, "t.json", program);
    EXPECT_NE(problem.find("t.json:2: "), std::string::npos) << problem;
}

}  // namespace
}  // namespace flx::simulate
