#include "runtime/front/nccl/routing.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/front/nccl/grouped.h"
#include "runtime/front/nccl/order.h"
#include "runtime/front/nccl/posting.h"
#include "runtime/front/nccl/statistics.h"

namespace flx::nccl {
namespace {

Request request(Kind kind, size_t count, ncclDataType_t type = ncclFloat32) {
    Request made;
    made.kind = kind;
    made.count = count;
    made.type = type;
    return made;
}

TEST(Route, GoesByWhatAllRanksKnow) {
    const Table all = Table::all();
    EXPECT_EQ(route(request(Kind::allreduce, 10), 4, all), Reason::none);
    EXPECT_EQ(route(request(Kind::allreduce, 0), 4, all), Reason::empty);
    for (const ncclDataType_t type : {ncclFloat8e4m3, ncclFloat8e5m2}) {
        for (const ncclRedOp_t op : {ncclSum, ncclMin, ncclMax, ncclAvg}) {
            Request small = request(Kind::allreduce, 10, type);
            small.op = op;
            EXPECT_EQ(route(small, 4, all), Reason::none);
        }
        Request product = request(Kind::reduce, 10, type);
        product.op = ncclProd;
        EXPECT_EQ(route(product, 4, all), Reason::type);
    }
    EXPECT_EQ(route(request(Kind::allgather, 10, ncclFloat8e4m3), 4, all), Reason::none);
    EXPECT_EQ(route(request(Kind::gather, 10), 4, all), Reason::form);
    EXPECT_EQ(route(request(Kind::send, 10), 4, all), Reason::none);
    EXPECT_EQ(route(request(Kind::recv, 10), 4, Table()), Reason::slower);
    Request far = request(Kind::send, 10);
    far.root = -1;
    EXPECT_EQ(route(far, 4, all), Reason::invalid);
    EXPECT_EQ(route(request(Kind::allgather, 10, static_cast<ncclDataType_t>(12)), 4, all), Reason::invalid);
    EXPECT_EQ(route(request(Kind::allreduce, SIZE_MAX / 8), 4, all), Reason::invalid);
    Request own = request(Kind::reduce_scatter, 10);
    own.op = static_cast<ncclRedOp_t>(ncclNumOps);
    EXPECT_EQ(route(own, 4, all), Reason::reduction);
    Request rooted = request(Kind::broadcast, 10);
    rooted.root = 4;
    EXPECT_EQ(route(rooted, 4, all), Reason::invalid);
    EXPECT_EQ(route(request(Kind::allreduce, 10), 4, Table()), Reason::slower);
}

TEST(Route, TypesOfLaterVersionsAreForNcclToJudge) {
    EXPECT_FALSE(known_to(22305, ncclFloat8e4m3));
    EXPECT_FALSE(known_to(21903, ncclFloat8e5m2));
    EXPECT_TRUE(known_to(22403, ncclFloat8e4m3));
    EXPECT_TRUE(known_to(22403, ncclFloat8e5m2));
    EXPECT_TRUE(known_to(21903, ncclBfloat16));
}

TEST(Route, WhatTheProgramChoseAndWhatFlxDoesNotKnowAreNccls) {
    const ncclCollConfig_t config{};
    Request chosen = request(Kind::allreduce, 10);
    chosen.config = &config;
    EXPECT_EQ(route(chosen, 4, Table::all()), Reason::configured);
    EXPECT_FALSE(is_newer(0, 22809));
    EXPECT_FALSE(is_newer(0, kNcclNewest));
    EXPECT_TRUE(is_newer(0, 23300)) << "the program may be as new as its library";
    EXPECT_FALSE(is_newer(22809, 23300)) << "it says that it is not";
    EXPECT_TRUE(is_newer(23301, 22809));
}

uint8_t bit(Trait trait) {
    return static_cast<uint8_t>(1U << static_cast<unsigned>(trait));
}

TEST(Route, TraitsAreOfTypeReductionAndParts) {
    EXPECT_EQ(traits_of(request(Kind::allreduce, 1001), 4), 0);
    EXPECT_EQ(traits_of(request(Kind::allreduce, 1001, ncclBfloat16), 4), bit(Trait::half));
    EXPECT_EQ(traits_of(request(Kind::allreduce, 1001, ncclUint64), 4), bit(Trait::wide));
    EXPECT_EQ(traits_of(request(Kind::reduce_scatter, 1024, ncclUint8), 4), bit(Trait::narrow));
    EXPECT_EQ(traits_of(request(Kind::reduce_scatter, 1001, ncclFloat8e5m2), 4),
              bit(Trait::eighth) | bit(Trait::beside));
    EXPECT_EQ(traits_of(request(Kind::allgather, 1002, ncclFloat64), 4), 0) << "nothing is added";
    EXPECT_EQ(traits_of(request(Kind::alltoall, 1002), 4), bit(Trait::beside));
    EXPECT_EQ(traits_of(request(Kind::send, 1002), 4), 0);
    Request least = request(Kind::reduce, 1000);
    least.op = ncclMin;
    EXPECT_EQ(traits_of(least, 4), bit(Trait::extreme));
}

TEST(Route, ACallWithATraitIsServedWhereFlxIsFasterWithIt) {
    Table::Measured measured{};
    for (const Kind kind : {Kind::allreduce, Kind::reduce_scatter, Kind::allgather})
        measured[static_cast<size_t>(kind)].fill({5, 10});
    Table::MeasuredTraits traits{};
    const auto set = [&](Trait trait, Kind kind, const std::array<Table::Times, 3> &times) {
        traits[static_cast<size_t>(trait)][static_cast<size_t>(kind)] = times;
    };
    set(Trait::half, Kind::allreduce, {{{6, 10}, {30, 10}, {9, 12}}});
    set(Trait::beside, Kind::allgather, {{{20, 10}, {20, 10}, {20, 10}}});
    const Table table = Table::of(measured, traits);
    const auto serves = [&](Kind kind, size_t bytes, uint8_t with) { return table.serves(kind, bytes, with); };
    for (const Kind kind : {Kind::allreduce, Kind::reduce_scatter}) {
        const uint8_t half = bit(Trait::half);
        EXPECT_TRUE(serves(kind, 64 << 10, half)) << "short ones are as others";
        EXPECT_TRUE(serves(kind, 256 << 10, half));
        EXPECT_TRUE(serves(kind, 1 << 20, half)) << "nearer to 256 KiB";
        EXPECT_FALSE(serves(kind, 4 << 20, half)) << "nearer to 8 MiB";
        EXPECT_FALSE(serves(kind, 8 << 20, half));
        EXPECT_FALSE(serves(kind, 20 << 20, half));
        EXPECT_TRUE(serves(kind, 32 << 20, half));
        EXPECT_TRUE(serves(kind, size_t{1} << 30, half));
        EXPECT_TRUE(serves(kind, 8 << 20, 0));
        EXPECT_FALSE(serves(kind, 8 << 20, half | bit(Trait::extreme)));
    }
    EXPECT_FALSE(serves(Kind::allgather, 1 << 20, bit(Trait::beside)));
    EXPECT_TRUE(serves(Kind::reduce_scatter, 1 << 20, bit(Trait::beside))) << "it was measured by itself: not at all";
    EXPECT_TRUE(serves(Kind::allgather, 1 << 20, 0));
    // Where the least point could not be measured, as in open outputs, the next one counts.
    set(Trait::half, Kind::allreduce, {{{0, 0}, {30, 10}, {9, 12}}});
    EXPECT_FALSE(Table::of(measured, traits).serves(Kind::allreduce, 4 << 20, bit(Trait::half)));
    EXPECT_FALSE(Table::of(measured, traits).serves(Kind::allreduce, 256 << 10, bit(Trait::half)));
    const std::vector<Decision> said = Tables{table, {}}.explain();
    ASSERT_EQ(said.size(), 5U);
    EXPECT_EQ(said[3].about, "AllReduce of 16-bit floats");
    EXPECT_EQ(said[3].decided, "FLX up to 1 MiB, from 32 MiB, else NCCL");
    EXPECT_EQ(said[3].from, "us of NCCL and of FLX: 256 KiB 10.0 6.0, 8 MiB 10.0 30.0, 32 MiB 12.0 9.0");
    EXPECT_EQ(said[4].about, "AllGather in parts beside lines of 16 bytes");
    EXPECT_EQ(said[4].decided, "FLX up to 64 KiB, else NCCL");
}

TEST(Route, FlxServesSizesBetweenPointsAtWhichItWasClearlyFaster) {
    Table::Measured measured{};
    auto &times = measured[static_cast<size_t>(Kind::allgather)];
    for (size_t point = 0; point < Table::kPoints; ++point)
        times[point] = {10, 10};          // no better
    times[1] = {5, 10};                   // 4 KiB
    times[2] = {5, 10};                   // 16 KiB
    times[3] = {9.9, 10};                 // 64 KiB: within the noise
    times[Table::kPoints - 1] = {5, 10};  // 256 MiB
    const Table table = Table::of(measured, {});
    const auto serves = [&](size_t bytes) { return table.serves(Kind::allgather, bytes); };
    EXPECT_FALSE(serves(1));
    EXPECT_FALSE(serves(1024));
    EXPECT_FALSE(serves(2048));
    EXPECT_TRUE(serves(4096));
    EXPECT_TRUE(serves(10000));
    EXPECT_TRUE(serves(16384));
    EXPECT_FALSE(serves(16385));
    EXPECT_FALSE(serves(65536));
    EXPECT_FALSE(serves((256 << 20) - 1));
    EXPECT_TRUE(serves(256 << 20));
    EXPECT_TRUE(serves(size_t{1} << 33));
    EXPECT_FALSE(table.serves(Kind::allreduce, 4096));
    EXPECT_FALSE(Table::of({}, {}).serves(Kind::allreduce, 4096));
}

TEST(Route, ATableSaysWhatItDecidedAndFromWhat) {
    Table::Measured measured{};
    measured[static_cast<size_t>(Kind::allgather)][1] = {5, 10};
    measured[static_cast<size_t>(Kind::allgather)][2] = {9.9, 10};
    measured[Table::kMessages][0] = {20, 10};
    Table::Measured met{};
    for (const size_t point : {size_t{0}, size_t{1}, size_t{4}, size_t{5}, Table::kPoints - 1})
        met[static_cast<size_t>(Kind::allreduce)][point] = {5, 10};
    met[static_cast<size_t>(Kind::reduce)].fill({5, 10});
    const std::vector<Decision> said = Tables{Table::of(measured, {}), Table::of(met, {})}.explain();
    ASSERT_EQ(said.size(), 4U);
    EXPECT_EQ(said[0].about, "AllGather");
    EXPECT_EQ(said[0].decided, "FLX at 4 KiB, else NCCL");
    EXPECT_EQ(said[0].from, "us of NCCL and of FLX: 4 KiB 10.0 5.0, 16 KiB 10.0 9.9");
    EXPECT_EQ(said[1].about, "Send and Recv");
    EXPECT_EQ(said[1].decided, "NCCL");
    EXPECT_EQ(said[2].about, "AllReduce into open outputs");
    EXPECT_EQ(said[2].decided, "FLX up to 4 KiB, from 256 KiB to 1 MiB, from 256 MiB, else NCCL");
    EXPECT_EQ(said[3].decided, "FLX");
    EXPECT_TRUE(Tables({Table::all(), Table::all()}).explain().empty());

    Statistics statistics;
    statistics.keep(2, said);
    statistics.keep(8, {said[1]});
    statistics.keep(2, {});
    const std::string text = statistics.text();
    EXPECT_NE(text.find("  as was measured for the last communicator of 2 ranks:\n    AllGather: FLX at 4 KiB, else "
                        "NCCL (us of NCCL and of FLX: 4 KiB 10.0 5.0, 16 KiB 10.0 9.9)\n"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("of 8 ranks:\n    Send and Recv: NCCL ("), std::string::npos) << text;
}

TEST(Route, BothEndsOfAMessageAreDecidedAlikeByItsSize) {
    Table::Measured measured{};
    measured[Table::kMessages][3] = {5, 10};
    const Table table = Table::of(measured, {});
    for (const Kind kind : {Kind::send, Kind::recv}) {
        EXPECT_EQ(route(request(kind, 65536, ncclUint8), 8, table), Reason::none);
        EXPECT_EQ(route(request(kind, 16384, ncclInt32), 2, table), Reason::none);
        EXPECT_EQ(route(request(kind, 65535, ncclUint8), 8, table), Reason::slower);
    }
    EXPECT_FALSE(table.serves(Kind::gather, 65536));
    EXPECT_FALSE(table.serves(Kind::alltoall, 65536));
    measured[Table::kMessages][Table::kPoints - 1] = {5, 10};
    EXPECT_TRUE(Table::of(measured, {}).serves(Kind::send, 256 << 20));
    EXPECT_FALSE(Table::of(measured, {}).serves(Kind::send, (256 << 20) + 1));
    EXPECT_TRUE(Table::all().serves(Kind::send, size_t{1} << 33));
}

TEST(Route, CollectivesHaveTheNamesOfFlx) {
    using enum algorithms::Collective;
    EXPECT_EQ(collective_of(Kind::allreduce), allreduce);
    EXPECT_EQ(collective_of(Kind::allgather), allgather);
    EXPECT_EQ(collective_of(Kind::reduce_scatter), reduce_scatter_block);
    EXPECT_EQ(collective_of(Kind::broadcast), bcast);
    EXPECT_EQ(collective_of(Kind::reduce), reduce);
    EXPECT_EQ(collective_of(Kind::alltoall), alltoall);
    EXPECT_EQ(collective_of(Kind::gather), gather);
    EXPECT_EQ(collective_of(Kind::scatter), scatter);
    EXPECT_EQ(collective_of(Kind::send), send_recv);
    EXPECT_EQ(collective_of(Kind::recv), send_recv);
}

TEST(Route, AnOperationIsOfTheWholeVectorInFlxsTypes) {
    Request sum = request(Kind::reduce_scatter, 10, ncclBfloat16);
    sum.op = ncclMin;
    sum.root = 3;
    const Operation whole = operation_of(sum, 4);
    EXPECT_EQ(whole.collective, algorithms::Collective::reduce_scatter_block);
    EXPECT_EQ(whole.root, 3);
    EXPECT_EQ(whole.count, 40U);
    EXPECT_EQ(whole.dtype, FLX_BF16);
    EXPECT_EQ(whole.op, FLX_MIN);
    EXPECT_EQ(operation_of(request(Kind::allreduce, 10), 4).count, 10U);
    EXPECT_EQ(operation_of(request(Kind::alltoall, 10, ncclFloat8e5m2), 4).dtype, FLX_F8E5M2);
    EXPECT_EQ(operation_of(request(Kind::allreduce, 10, ncclFloat8e4m3), 4).dtype, FLX_F8E4M3);
    EXPECT_EQ(bytes_of(request(Kind::alltoall, 10), 4), 160U);
    EXPECT_EQ(bytes_of(request(Kind::send, 10), 4), 40U);
}

struct Calls {
    std::vector<char> in = std::vector<char>(4096), out = std::vector<char>(4096);
    std::vector<Deferred> calls;

    void add(Kind kind, int peer, size_t offset, size_t count, ncclDataType_t type = ncclUint8,
             cudaStream_t stream = nullptr) {
        Request made = request(kind, count, type);
        made.root = peer;
        made.in = in.data() + offset;
        made.out = out.data() + offset;
        calls.push_back({made, nullptr, stream});
    }
    [[nodiscard]] Gathered gathered(int ranks) const {
        std::vector<const Deferred *> all;
        for (const Deferred &call : calls)
            all.push_back(&call);
        return gather(all, ranks);
    }
};

TEST(Gather, OneCollectiveStaysWhatItIs) {
    Calls calls;
    calls.add(Kind::allreduce, 0, 0, 10);
    EXPECT_EQ(calls.gathered(4).form, Gathered::Form::single);
    calls.add(Kind::allreduce, 0, 0, 10);
    EXPECT_EQ(calls.gathered(4).form, Gathered::Form::several);
    EXPECT_EQ(calls.gathered(4).why, Reason::grouped);
}

TEST(Gather, AConfigurationIsKeptUntilTheGroupEnds) {
    std::string algorithm = "RING";
    ncclCollConfig_t config{};
    config.size = sizeof config;
    config.algSelection = algorithm.c_str();
    config.maxCTAs = 3;
    const KeptConfig kept(&config);
    algorithm = "TREE";
    config.maxCTAs = 7;
    EXPECT_NE(kept.get(), &config);
    EXPECT_EQ(kept.get()->maxCTAs, 3);
    EXPECT_STREQ(kept.get()->algSelection, "RING");
    config.size = 1 << 20;
    EXPECT_EQ(KeptConfig(&config).get(), &config) << "that was never initialised, which NCCL says";
}

TEST(Gather, AnAllToAllInAnyOrderAndTypeOfTheSameLength) {
    Calls calls;
    for (const int peer : {2, 0, 1})
        calls.add(Kind::send, peer, peer * 40, 10, ncclFloat32);
    for (const int peer : {0, 1, 2})
        calls.add(Kind::recv, peer, peer * 40, 40, ncclUint8);
    const Gathered found = calls.gathered(3);
    ASSERT_EQ(found.form, Gathered::Form::alltoall);
    EXPECT_EQ(found.whole.in, calls.in.data());
    EXPECT_EQ(found.whole.out, calls.out.data());
    EXPECT_EQ(found.whole.count * size_of(found.whole.type), 40U);
    EXPECT_EQ(calls.gathered(4).form, Gathered::Form::several);  // a rank has none
}

TEST(Gather, WhatIsNoAllToAll) {
    const auto with = [](auto &&change) {
        Calls calls;
        for (int peer = 0; peer < 3; ++peer) {
            calls.add(Kind::send, peer, peer * 40, 40);
            calls.add(Kind::recv, peer, peer * 40, 40);
        }
        change(calls);
        return calls.gathered(3);
    };
    EXPECT_EQ(with([](Calls &) {}).form, Gathered::Form::alltoall);
    const auto none = [&](auto &&change) {
        const Gathered found = with(change);
        EXPECT_EQ(found.form, Gathered::Form::several);
    };
    none([](Calls &calls) { calls.calls.pop_back(); });
    none([](Calls &calls) { calls.calls[2].request.count = 39; });
    none([](Calls &calls) { calls.calls[2].request.in = calls.in.data() + 41; });
    none([](Calls &calls) { calls.calls[2].request.root = 0; });
    none([](Calls &calls) { calls.calls[2].request.root = 3; });
    none([](Calls &calls) { calls.calls[0].request.root = -1; });
    none([](Calls &calls) { calls.calls[3].stream = reinterpret_cast<cudaStream_t>(8); });
    none([](Calls &calls) {
        for (Deferred &call : calls.calls) {
            call.request.count = 0;
        }
    });
    // In place.
    none([](Calls &calls) {
        for (Deferred &call : calls.calls)
            call.request.out = const_cast<void *>(call.request.in);
    });
    EXPECT_EQ(with([](Calls &calls) { calls.add(Kind::allreduce, 0, 0, 10); }).why, Reason::grouped);
}

TEST(Divide, MessagesGoBySizeAndThoseToItselfWithTheOthers) {
    Calls calls;
    calls.add(Kind::send, 0, 0, 8);    // to itself
    calls.add(Kind::send, 1, 0, 100);  // FLX's
    calls.add(Kind::recv, 1, 0, 10);   // NCCL's
    calls.add(Kind::allreduce, 0, 0, 4);
    calls.add(Kind::recv, 0, 0, 8);
    const auto divided = [&] {
        std::vector<const Deferred *> all;
        for (const Deferred &call : calls.calls)
            all.push_back(&call);
        return divide(all, 0, Reason::grouped,
                      [](const Request &message) { return message.count >= 100 ? Reason::none : Reason::slower; });
    };
    Divided found = divided();
    ASSERT_EQ(found.posted.size(), 3U);
    EXPECT_EQ(found.posted[0], &calls.calls[1]);
    ASSERT_EQ(found.passed.size(), 2U);
    EXPECT_EQ(found.passed[0].why, Reason::slower);
    EXPECT_EQ(found.passed[1].why, Reason::grouped);
    // What cannot meet is for NCCL to judge.
    calls.calls[4].request.count = 7;
    found = divided();
    EXPECT_EQ(found.posted.size(), 1U);
    ASSERT_EQ(found.passed.size(), 4U);
    EXPECT_EQ(found.passed[3].why, Reason::own);
    calls.calls[4].request.count = 8;
    calls.calls[1].request.count = 9;
    found = divided();
    EXPECT_TRUE(found.posted.empty());
    EXPECT_EQ(found.passed.size(), 5U);
}

TEST(Divide, MoreThanFlxTakesAtOnceGoInRoundsThatBothEndsHaveAlike) {
    const auto many = [](int peer, bool sends, size_t count) {
        return std::vector<cuda::Message>(count, {nullptr, 4, peer, sends});
    };
    std::vector<cuda::Message> mine = many(1, true, 200);
    const std::vector<cuda::Message> more = many(2, false, 40);
    mine.insert(mine.end(), more.begin(), more.end());
    EXPECT_EQ(rounds_of(mine, 240).size(), 1U);
    const auto rounds = rounds_of(mine, 160);  // 10 of each pair and direction
    ASSERT_EQ(rounds.size(), 20U);
    EXPECT_EQ(rounds[0].size(), 20U);
    EXPECT_EQ(rounds[4].size(), 10U);
    const auto theirs = rounds_of(many(0, false, 200), 160);
    ASSERT_EQ(theirs.size(), 20U);
    EXPECT_EQ(theirs[19].size(), 10U);
}

TEST(Order, OnlyWhatIsOnAnotherStreamIsWaitedFor) {
    Order order;
    EXPECT_FALSE(order.next(1, 0).wait_last);
    EXPECT_FALSE(order.next(1, 0).wait_last);
    EXPECT_TRUE(order.next(2, 0).wait_last);
    EXPECT_FALSE(order.next(2, 0).wait_last);
    EXPECT_TRUE(order.next(1, 0).wait_last);
}

TEST(Order, CapturesWaitForWhatComesBeforeTheirReplays) {
    Order order;
    (void)order.next(1, 0);
    Order::Steps steps = order.next(1, 7);
    EXPECT_TRUE(steps.wait_last && steps.external && !steps.wait_captured);
    steps = order.next(1, 7);
    EXPECT_TRUE(!steps.wait_last && steps.external && !steps.wait_captured);
    steps = order.next(2, 7);  // forked within the capture
    EXPECT_TRUE(!steps.wait_last && steps.external && steps.wait_captured);
    // From now on a replay may be anywhere.
    steps = order.next(2, 0);
    EXPECT_TRUE(steps.wait_last && !steps.external && !steps.wait_captured);
    EXPECT_TRUE(order.next(2, 0).wait_last);
    EXPECT_TRUE(order.next(2, 8).wait_last);
}

}  // namespace
}  // namespace flx::nccl
