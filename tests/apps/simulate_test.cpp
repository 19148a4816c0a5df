#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "apps/flx_simulate/cells.h"
#include "apps/flx_simulate/machine.h"
#include "apps/flx_simulate/report.h"

namespace flx::simulate {
namespace {

using algorithms::Collective;

Machine read(const std::string &text) {
    Machine machine;
    EXPECT_EQ(parse_machine(text, "m.toml", machine), "");
    return machine;
}

std::string problem_of(const std::string &text) {
    Machine machine;
    return parse_machine(text, "m.toml", machine);
}

Machine cluster(int hosts, int ranks, const std::string &network = "") {
    return read("hosts = " + std::to_string(hosts) + "\nranks = " + std::to_string(ranks) +
                "\n[far]\nrails = 2\nbandwidth = 1\n" + network);
}

TEST(SimulatedMachine, IsReadFromToml) {
    const Machine machine = read(
        "name = \"x\"\nhosts = 6\nranks = 3\n[near]\nlatency_ns = 7\n[far]\nrails = 4\nbandwidth = 12.5\n"
        "[network]\nkind = \"fat-tree\"\nleaf = 2\ntaper = 3\nhop_ns = 70\npod = 4\npod_taper = 2\n");
    EXPECT_EQ(machine.name, "x");
    EXPECT_EQ(machine.size(), 18);
    EXPECT_EQ(machine.costs.near.latency_ns, 7);
    EXPECT_EQ(machine.costs.far.bytes_per_ns, 50) << "of all rails together";
    ASSERT_EQ(machine.fabric.levels.size(), 2);
    EXPECT_EQ(machine.fabric.levels[0].hosts, 2);
    EXPECT_EQ(machine.fabric.levels[0].taper, 3);
    EXPECT_EQ(machine.fabric.levels[1].hosts, 4);
    EXPECT_EQ(machine.fabric.levels[1].taper, 6) << "over both levels";
    EXPECT_EQ(machine.placement().host[3], 1);
}

TEST(SimulatedMachine, SaysWhatIsWrongInAFile) {
    EXPECT_NE(problem_of("hosts = \"many\"\n").find("m.toml: it has hosts that is no whole number"), std::string::npos);
    EXPECT_NE(problem_of("hosts = 0\n").find("from 2 to"), std::string::npos);
    EXPECT_NE(problem_of("[far]\nrail = 2\n").find("[far] has no field rail; there are rails"), std::string::npos);
    EXPECT_NE(problem_of("[fear]\n").find("no table [fear]"), std::string::npos);
    EXPECT_NE(problem_of("[network]\nkind = \"torus\"\n").find("there are flat, fat-tree"), std::string::npos);
    EXPECT_NE(problem_of("hosts = \n").find("m.toml:1: "), std::string::npos);
}

TEST(Simulation, ChoosesAmongItsCandidates) {
    for (const Collective collective : {Collective::allreduce, Collective::allgather, Collective::alltoall,
                                        Collective::bcast, Collective::barrier, Collective::scan}) {
        const Machine machine = cluster(4, 4);
        Experiment experiment(machine, collective);
        for (const size_t bytes : {size_t{8}, size_t{64} << 10, size_t{16} << 20}) {
            const Cell cell = experiment.cell(bytes);
            ASSERT_LT(cell.chosen, cell.outcomes.size()) << algorithms::name_of(collective) << " " << bytes;
            EXPECT_GE(cell.worse(), 1);
            for (size_t i = 1; i < cell.outcomes.size(); ++i)
                EXPECT_LE(cell.outcomes[i - 1].ns, cell.outcomes[i].ns);
        }
    }
}

TEST(Simulation, OfATaperedNetworkTakesLonger) {
    const auto ns = [](const std::string &network) {
        const Machine machine = cluster(16, 2, network);
        return Experiment(machine, Collective::alltoall).cell(16 << 20).best().ns;
    };
    const double flat = ns("");
    EXPECT_GT(ns("[network]\nkind = \"fat-tree\"\nleaf = 4\ntaper = 4\n"), 1.5 * flat);
    EXPECT_GT(ns("[network]\nkind = \"dragonfly\"\ngroup = 4\n"), 1.2 * flat);
    EXPECT_NEAR(ns("[network]\nkind = \"rail-optimised\"\nleaf = 16\n") / flat, 1, 1e-9) << "all are on one leaf";
}

TEST(Simulation, GivesTheSameWithAnyNumberOfThreads) {
    const Machine machine = cluster(8, 2);
    const std::vector<Collective> collectives = {Collective::allreduce, Collective::bcast, Collective::allgather};
    size_t last = 0;
    const std::vector<Cell> cells = run_all(machine, collectives, {8, 1 << 20}, [&](size_t done) { last = done; });
    ASSERT_EQ(cells.size(), 6);
    EXPECT_EQ(last, 6);
    EXPECT_EQ(cells[3].collective, Collective::bcast);
    EXPECT_EQ(cells[3].bytes, 1 << 20);
    EXPECT_EQ(cells[3].best().ns, Experiment(machine, Collective::bcast).cell(1 << 20).best().ns);
}

TEST(Simulation, ReckonsBusBandwidth) {
    EXPECT_NEAR(bus_bandwidth(Collective::allreduce, 1000, 4, 100), 15, 1e-9);
    EXPECT_NEAR(bus_bandwidth(Collective::allgather, 1000, 4, 100), 7.5, 1e-9);
    EXPECT_NEAR(bus_bandwidth(Collective::bcast, 1000, 4, 100), 10, 1e-9);
}

}  // namespace
}  // namespace flx::simulate
