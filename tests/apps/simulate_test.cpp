#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>

#include "apps/flx_simulate/cells.h"
#include "apps/flx_simulate/faults.h"
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
    EXPECT_NE(problem_of("hosts = 0\n").find("from 1 to"), std::string::npos);
    EXPECT_NE(problem_of("[far]\nrail = 2\n").find("[far] has no field rail; there are rails"), std::string::npos);
    EXPECT_NE(problem_of("[fear]\n").find("no table [fear]"), std::string::npos);
    EXPECT_NE(problem_of("[network]\nkind = \"torus\"\n").find("there are flat, fat-tree"), std::string::npos);
    EXPECT_NE(problem_of("hosts = \n").find("m.toml:1: "), std::string::npos);
    EXPECT_NE(problem_of("[far]\nlatency_ns = nan\n").find("latency_ns that is no number"), std::string::npos);
    EXPECT_NE(problem_of("[near.latency]\n").find("[near] has a table latency,"), std::string::npos);
    EXPECT_NE(problem_of("[network.leaf]\n").find("[network] has a table leaf"), std::string::npos);
    EXPECT_NE(problem_of("[far]\n\"send_ns receive_ns\" = 2\n").find("no field send_ns receive_ns"), std::string::npos);
    EXPECT_NE(problem_of("[network]\nkind = \"fat-tree\"\nleaf = 4\npod = 2\n").find("no multiple of leaf = 4"),
              std::string::npos);
    EXPECT_NE(problem_of("name = \"a\\nb\"\n").find("control character"), std::string::npos);
    EXPECT_NE(problem_of("hosts = 4096\nranks = 1024\n").find("no more than 262144"), std::string::npos);
    EXPECT_EQ(problem_of("hosts = 65536\nranks = 4\n"), "");
    EXPECT_EQ(problem_of("[far]\nbandwidth = 1e-6\n"), "") << "a rail of busy emulated hosts may have little";
    EXPECT_NE(problem_of("[far]\nbandwidth = 1e-7\n").find("bandwidth that is no number from 1e-06"),
              std::string::npos);
    Machine machine;
    EXPECT_NE(read_machine("/", machine).find("no regular file"), std::string::npos);
}

TEST(SimulatedMachine, HasRailsOfDifferentRates) {
    const std::vector<double> rates = {0.5, 0.25};
    for (const char *text : {"[far]\nrails = 2\nbandwidth = [0.5, 0.25]\nburst = 3\n",
                             R"({"far": {"rails": 2, "bandwidth": [0.5, 0.25], "burst": 3}})"}) {
        const Machine machine = read(text);
        EXPECT_EQ(machine.rates, rates);
        EXPECT_EQ(machine.costs.far.bytes_per_ns, 0.75) << "of all rails together";
        EXPECT_EQ(machine.burst, 3);
    }
    EXPECT_NE(problem_of("[far]\nrails = 3\nbandwidth = [0.5, 0.25]\n").find("no list of 3 numbers from 1e-06"),
              std::string::npos);
    EXPECT_NE(problem_of("[far]\nrails = 1\nbandwidth = [-1]\n").find("no list of 1 numbers"), std::string::npos);
    EXPECT_NE(problem_of("[far]\nlatency_ns = [1]\n").find("latency_ns that is no number"), std::string::npos);
    EXPECT_NE(problem_of("[far]\nburst = 1e-300\n").find("a rate from 1e-06 on"), std::string::npos);
    EXPECT_NE(problem_of("[far]\nrails = 17\nburst = 500\n").find("there are 16 at most"), std::string::npos);
    EXPECT_NE(
        problem_of("[far]\nburst = 50\n[network]\nkind = \"fat-tree\"\ntaper = 2\n").find("and [network] a taper"),
        std::string::npos);
    EXPECT_EQ(problem_of("[far]\nburst = 50\n[network]\nkind = \"fat-tree\"\n"), "");
}

TEST(SimulatedMachine, IsReadFromJson) {
    const Machine machine = read(
        R"( { "name": "x", "hosts": 6, "ranks": 3, "near": {"latency_ns": 7}, "far": {"rails": 4, "bandwidth": 12.5},)"
        R"( "network": {"kind": "fat-tree", "leaf": 2}} )");
    EXPECT_EQ(machine.name, "x");
    EXPECT_EQ(machine.size(), 18);
    EXPECT_EQ(machine.costs.near.latency_ns, 7);
    EXPECT_EQ(machine.costs.far.bytes_per_ns, 50) << "of all rails together";
    EXPECT_EQ(machine.fabric.levels.size(), 1);
}

TEST(SimulatedMachine, SaysWhatIsWrongInJson) {
    const auto says = [](const std::string &text, const std::string &sentence) {
        EXPECT_NE(problem_of(text).find(sentence), std::string::npos) << problem_of(text);
    };
    says("{\"hosts\": 4,\n\"ranks\": }", "m.toml:2: this is no JSON");
    says("{\"hosts\": 0}", "m.toml: it has hosts that is no whole number from 1 to");
    says("{\"far\": {\"rails\": 2, \"bandwidth\": [1, \"2\"]}}", "[far] has bandwidth that is no list of 2 numbers");
    says("{\"hosts\": 2.5}", "hosts that is no whole number");
    says("{\"hosts\": null}", "hosts that is no whole number");
    says("{\"hosts\": 18446744073709551615}", "hosts that is no whole number");
    says("{\"rails\": 2}", "it has no field rails; there are name hosts ranks");
    says("{\"far\": {\"rail\": 2}}", "[far] has no field rail; there are rails");
    says("{\"far\": {\"latency_ns\": [1]}}", "latency_ns that is no number");
    says("{\"far\": {\"latency_ns\": true}}", "latency_ns that is no number");
    says("{\"near\": {\"latency\": {}}}", "[near] has a table latency,");
    says("{\"near\": 4}", "it has no field near");
    says("{\"name\": 4}", "name that is no text");
    says("{\"far\": {\"latency_ns\": 1e999}}", "m.toml: this JSON cannot be read: ");
    for (const char *array : {"[1]", " [{\"hosts\": 4}]", "[]"})
        says(array, "m.toml: this is an array of JSON, and a machine is an object, which begins with a brace");
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

double chosen_ns(const Machine &machine, Collective collective, size_t bytes) {
    return Experiment(machine, collective).cell(bytes).choice().ns;
}

TEST(Simulation, OfShapersLetsBurstsPassAndNoMore) {
    const std::string rails = "ranks = 4\n[far]\nrails = 2\nbandwidth = 0.25\n";
    const Machine slow = read(rails);
    const Machine shaped = read(rails + "burst = 5\n");
    const Machine fast = read("ranks = 4\n[far]\nrails = 2\nbandwidth = 2.5\n");
    for (const Collective collective : {Collective::allreduce, Collective::allgather, Collective::alltoall}) {
        // As on rails of the bursts' rate, but for bytes that must go by one rail, or by both.
        const double kib = 1 << 10;
        EXPECT_DOUBLE_EQ(chosen_ns(shaped, collective, 64), chosen_ns(fast, collective, 64));
        const double host = collective == Collective::allgather ? 0.5 : collective == Collective::allreduce ? 1 : 2;
        EXPECT_GE(chosen_ns(shaped, collective, 8 << 10), host * 8 * kib / 0.25);
        EXPECT_GE(chosen_ns(shaped, collective, 4 << 20), host * 4096 * kib / 0.5);
        EXPECT_LE(chosen_ns(shaped, collective, 4 << 20), 1.1 * chosen_ns(slow, collective, 4 << 20));
    }
}

TEST(Simulation, OfRailsThatManyRanksShareAtRandom) {
    const std::string rails = "ranks = 4\n[far]\nrails = 2\nbandwidth = 0.25\nburst = 5\n";
    const Machine calm = read(rails);
    const Machine crowded = read(rails + "crowd = 0.4\n");
    EXPECT_DOUBLE_EQ(chosen_ns(crowded, Collective::alltoall, 4 << 20),
                     (1 + 0.4 * 3 / 4) * chosen_ns(calm, Collective::alltoall, 4 << 20));
    EXPECT_EQ(chosen_ns(crowded, Collective::allgather, 4 << 20), chosen_ns(calm, Collective::allgather, 4 << 20));
}

TEST(Simulation, OfOneHostGoesThroughItsMemory) {
    const Machine machine = read("hosts = 1\nranks = 4\n[near]\nbandwidth = 8\n");
    for (const algorithms::Traits &traits : algorithms::kTraits) {
        if (!algorithms::has_schedules(traits.collective) && traits.collective != Collective::alltoall)
            continue;
        Experiment experiment(machine, traits.collective);
        double before = 0;
        for (const size_t bytes : {size_t{64}, size_t{8} << 10, size_t{1} << 20, size_t{8} << 20}) {
            const Cell cell = experiment.cell(bytes);
            EXPECT_GE(cell.choice().ns, before) << traits.name << " " << bytes;
            before = cell.choice().ns;
        }
    }
    EXPECT_EQ(Experiment(machine, Collective::allgather).cell(64).choice().name, "fused");
    const Cell cell = Experiment(machine, Collective::allgather).cell(4 << 20);
    EXPECT_EQ(cell.choice().name, "fetched");
    const double waits = 2 * (300 + 4 * 150);
    EXPECT_DOUBLE_EQ(cell.choice().ns, waits + 0.75 * (4 << 20) / 8);
    const Machine narrow = read("hosts = 1\nranks = 4\n[near]\nbandwidth = 8\ntogether = 16\n");
    EXPECT_DOUBLE_EQ(chosen_ns(narrow, Collective::allgather, 4 << 20), waits + 0.75 * (4 << 20) / 4);
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
    for (const size_t threads : {1, 2, 3, 8}) {
        size_t last = 0;
        const std::vector<Cell> cells = run_all(
            machine, collectives, {8, 1 << 20}, [&](size_t done) { last = done; }, threads);
        ASSERT_EQ(cells.size(), 5) << "no allgather of 8 bytes among 16 ranks";
        EXPECT_EQ(last, 5);
        for (const Cell &cell : cells) {
            const Cell alone = Experiment(machine, cell.collective).cell(cell.bytes);
            ASSERT_EQ(cell.outcomes.size(), alone.outcomes.size());
            for (size_t i = 0; i < cell.outcomes.size(); ++i)
                EXPECT_EQ(cell.outcomes[i].ns, alone.outcomes[i].ns) << cell.outcomes[i].name;
            EXPECT_EQ(cell.chosen, alone.chosen);
        }
        EXPECT_EQ(cells[3].collective, Collective::bcast);
        EXPECT_EQ(cells[3].bytes, 1 << 20);
    }
}

TEST(Simulation, PassesOnWhatAThreadThrows) {
    const auto stop = [](size_t) { throw std::runtime_error("enough"); };
    for (const size_t threads : {1, 3})
        EXPECT_THROW(
            run_all(cluster(4, 2), {Collective::allreduce, Collective::bcast, Collective::scan}, {8}, stop, threads),
            std::runtime_error);
}

TEST(Simulation, LeavesOutCallsThatThereCannotBe) {
    const std::vector<size_t> sizes = {0, 8, 64, 4096};
    EXPECT_EQ(sizes_of(Collective::allreduce, sizes, 64), (std::vector<size_t>{8, 64, 4096}));
    for (const Collective collective : {Collective::allgather, Collective::reduce_scatter_block, Collective::alltoall,
                                        Collective::gather, Collective::scatter})
        EXPECT_EQ(sizes_of(collective, sizes, 64), (std::vector<size_t>{64, 4096})) << algorithms::name_of(collective);
    EXPECT_EQ(sizes_of(Collective::barrier, {0}, 64), std::vector<size_t>{8});
    EXPECT_EQ(cells_of(cluster(8, 8), {Collective::allreduce, Collective::alltoall, Collective::barrier}, sizes), 6);
}

TEST(Simulation, ReckonsBusBandwidth) {
    EXPECT_NEAR(bus_bandwidth(Collective::allreduce, 1000, 4, 100), 15, 1e-9);
    EXPECT_NEAR(bus_bandwidth(Collective::allgather, 1000, 4, 100), 7.5, 1e-9);
    EXPECT_NEAR(bus_bandwidth(Collective::bcast, 1000, 4, 100), 10, 1e-9);
}

/// A call takes what its bytes need on the slowest host's rails.
Losses lose(const Machine &machine, const Fault &fault) {
    constexpr double kBytes = 1 << 30;
    return run_faults(machine, fault, 400, kBytes, [](double rate) { return kBytes / rate; });
}

TEST(SimulatedFaults, CostLessWithTheController) {
    const Machine machine = read("hosts = 16\n[far]\nrails = 8\nbandwidth = 10\n");
    for (const double part : {0.25, 0.0}) {
        const Losses losses = lose(machine, {.number = 3, .part = part, .from = 100, .to = 300});
        // Half of the calls have 7.25, or 7, of 8 rails at best.
        EXPECT_NEAR(losses.least / losses.undisturbed, 0.5 + 0.5 * 8 / (7 + part), 0.001) << part;
        EXPECT_LT(losses.with_controller, 1.05 * losses.least) << part;
        EXPECT_GT(losses.without, 1.4 * losses.undisturbed) << part;
        EXPECT_GE(losses.recovered, 0) << part;
        EXPECT_LT(losses.recovered, 20) << part;
    }
}

TEST(SimulatedFaults, OfAFastRailCostMoreThanThoseOfASlowOne) {
    const Machine machine = read("hosts = 16\n[far]\nrails = 2\nbandwidth = [7.5, 2.5]\n");
    for (const auto &[rail, left] : {std::pair(0, 0.25), std::pair(1, 0.75)}) {
        const Losses losses = lose(machine, {.number = rail, .part = 0, .from = 100, .to = 300});
        EXPECT_NEAR(losses.least / losses.undisturbed, 0.5 + 0.5 / left, 0.001) << rail;
        EXPECT_LT(losses.with_controller, 1.05 * losses.least) << rail;
    }
}

/// A rail that is lost is still in the vector of the call in which that happens.
TEST(SimulatedFaults, OfALostRailAreSeenInTheCallThatLosesIt) {
    const Machine machine = read("hosts = 16\n[far]\nrails = 8\nbandwidth = 10\n");
    const Losses losses = lose(machine, {.number = 3, .part = 0, .from = 100, .to = 300});
    EXPECT_GE(losses.recovered, 1);
    const double call = losses.undisturbed / 400;
    EXPECT_GT(losses.with_controller - losses.least, 0.5 * call) << "the next rail carries twice as much";
    EXPECT_LT(losses.with_controller - losses.least, 4 * call);
}

TEST(SimulatedFaults, AreRefusedWhereTheyMakeNoSense) {
    const Machine machine = read("[far]\nrails = 2\n");
    Fault fault;
    EXPECT_EQ(parse_fault("1:0.5:10:20", machine, 100, fault), "");
    EXPECT_EQ(fault.number, 1);
    EXPECT_EQ(fault.part, 0.5);
    EXPECT_EQ(fault.to, 20);
    EXPECT_EQ(parse_fault("1:0:10:20", machine, 11, fault), "");
    for (const char *text :
         {"", "1:0.5:10", "1:0.5:20:10", "1:2:10:20", "1:0.5:10:20x", "2:0.5:10:20", "0:nan:1:3", "0:1e-320:1:3",
          "0:-0.5:1:3", "0:0.5:100:300", "4294967297:0.5:1:3", "1:0.5:4294967297:4294967300", "+1:0.5:1:3"})
        EXPECT_NE(parse_fault(text, machine, 100, fault), "") << text;
    EXPECT_NE(parse_fault("0:0.5:10:20", read("[far]\nrails = 1\n"), 100, fault), "");
    EXPECT_NE(parse_fault("0:0.5:10:20", read("hosts = 1\n[far]\nrails = 2\n"), 100, fault).find("one host"),
              std::string::npos);
    EXPECT_NE(parse_fault("0:0.5:10:20", read("[far]\nrails = 2\nburst = 60\n"), 100, fault).find("burst"),
              std::string::npos);
    EXPECT_EQ(parse_fault("host1:0.5:10:20", read("[far]\nrails = 1\n"), 100, fault), "");
    EXPECT_TRUE(fault.of_host);
    EXPECT_EQ(fault.number, 1);
    for (const char *text : {"host2:0.5:10:20", "host-1:0.5:10:20", "host:0.5:10:20", "host1:0:10:20", "host1:2:10:20",
                             "hosts1:0.5:10:20", "host4294967297:0.5:10:20"})
        EXPECT_NE(parse_fault(text, machine, 100, fault), "") << text;
}

/// A host that is slow costs most where all wait for it in each round, and least where it is a leaf of a tree.
TEST(SimulatedFaults, OfAHostCostAsMuchAsOthersWaitForIt) {
    const Machine machine = read("hosts = 16\nranks = 1\n");
    const auto times = [&](Collective collective, const Machine &of, int host) {
        Experiment experiment(of, collective);
        return experiment.ns_beside(8, {host, 4}) / experiment.cell(8).choice().ns;
    };
    EXPECT_EQ(Experiment(machine, Collective::allreduce).ns_beside(8, {3, 1}),
              Experiment(machine, Collective::allreduce).cell(8).choice().ns);
    for (const int host : {0, 5, 15}) {
        EXPECT_GT(times(Collective::allreduce, machine, host), 2) << host;
        EXPECT_LT(times(Collective::allreduce, machine, host), 4) << host << ": the wire is as fast as before";
    }
    EXPECT_GT(times(Collective::bcast, machine, 0), times(Collective::bcast, machine, 15)) << "the root, and a leaf";
    // Where one host stands for all it is slow, and so are they. Hosts of several ranks go stage by stage.
    for (const char *text : {"hosts = 512\nranks = 1\n", "hosts = 16\nranks = 4\n"})
        for (const Collective collective : {Collective::allreduce, Collective::alltoall, Collective::barrier}) {
            const Machine many = read(text);
            EXPECT_GT(times(collective, many, 5), 1.5) << text << algorithms::name_of(collective);
            EXPECT_LE(times(collective, many, 5), 4) << text << algorithms::name_of(collective);
        }
}

TEST(SimulatedFaults, OfAHostLastFromCallToCall) {
    const Fault fault{.of_host = true, .number = 1, .part = 0.5, .from = 10, .to = 30};
    const Losses losses = run_slow_host(fault, 100, 5, 8);
    EXPECT_EQ(losses.undisturbed, 500);
    EXPECT_EQ(losses.without, 560);
    EXPECT_EQ(run_slow_host(fault, 20, 5, 8).without, 130) << "the last calls";
}

TEST(SimulatedFaults, ThatComeNowAndThenCostTheTimeInWhichOneIsThere) {
    const Machine machine = read("hosts = 16\n[far]\nrails = 8\nbandwidth = 10\n");
    const Losses losses = lose(machine, {.number = 3, .part = 0.25, .from = 100, .to = 300});
    const double least = 8 / 7.25 - 1;
    // One rail that is faulty half of the time.
    const LostTime one = lost_time(losses, 400, {.between_h = 10, .repair_h = 10}, 1);
    EXPECT_NEAR(one.faulty, 0.5, 1e-12);
    EXPECT_NEAR(one.least, 1 / (0.5 + 0.5 * 7.25 / 8) - 1, 0.001);
    // The rail has an eighth of the bytes and takes four times as long: half of the time a quarter is done of what
    // would be, so five eighths of all.
    EXPECT_NEAR(one.without, 8 / 5.0 - 1, 0.001);
    EXPECT_GT(one.with_controller, 0.99 * one.least);
    EXPECT_LT(one.with_controller, 0.5 * one.without);
    // Of many rails one is nearly always faulty; another one costs no more.
    const LostTime many = lost_time(losses, 400, {.between_h = 10, .repair_h = 10}, 128);
    EXPECT_NEAR(many.faulty, 1, 1e-12);
    EXPECT_NEAR(many.least, least, 0.001);
    // Rare and short ones cost in proportion; what the controller needs to follow comes on top.
    const LostTime rare = lost_time(losses, 400, {.between_h = 1e6, .repair_h = 1}, 128);
    EXPECT_NEAR(rare.faulty, 128e-6, 1e-8);
    EXPECT_GE(rare.with_controller, rare.faulty * (1 - losses.undisturbed / 400 / losses.last_with));
    EXPECT_NEAR(rare.without, 128e-6 * 0.75, 1e-7);
    EXPECT_GT(losses.adapting, 0);
    EXPECT_GT(lost_time(losses, 400, {.between_h = 1e-6, .repair_h = 1e-9}, 1).with_controller,
              lost_time(losses, 400, {.between_h = 1, .repair_h = 1e-3}, 1).with_controller)
        << "as large a part of the time, and more beginnings";
    EXPECT_TRUE(std::isinf(lost_time(losses, 400, {.between_h = 1e-9, .repair_h = 1e-9}, 128).with_controller));
}

TEST(SimulatedFaults, HaveRatesInHours) {
    FaultRate rate;
    EXPECT_EQ(parse_rate("600000:24", rate), "");
    EXPECT_EQ(rate.between_h, 600000);
    EXPECT_EQ(rate.repair_h, 24);
    for (const char *text : {"", "5", "5:", "0:5", "5:0", "-1:5", "nan:1", "5:5:5", "5:1e300", "5h:1"})
        EXPECT_NE(parse_rate(text, rate).find("is no BETWEEN:REPAIR"), std::string::npos) << text;
}

}  // namespace
}  // namespace flx::simulate
