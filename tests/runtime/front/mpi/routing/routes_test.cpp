#include "runtime/front/mpi/routing/routes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

namespace flx::preload {
namespace {

constexpr double kPriceS = 0.1;

/// A program on some ranks, whose calls take what a test says.
class Program {
  public:
    explicit Program(int ranks) : routes_(ranks) {}

    /// Seconds of one call on a rank.
    using Took = std::function<double(Route route, int rank)>;

    /// One call on all ranks, as Library makes it. Where it went.
    Route call(CallClass which, const Took &took) {
        if (routes_[0].is_time_to_ask())
            ask();
        if (routes_[0].is_trial_over(which))
            compare(which);
        const Route route = routes_[0].route(which);
        const bool timed = routes_[0].wants_time(which);
        for (size_t rank = 0; rank < routes_.size(); ++rank) {
            EXPECT_FALSE(routes_[rank].is_time_to_ask() || routes_[rank].is_trial_over(which));
            EXPECT_EQ(routes_[rank].route(which), route) << "ranks part";
            const double seconds = took(route, static_cast<int>(rank));
            spent_ += rank == 0 ? seconds : 0;
            routes_[rank].carried_out(which, route, timed ? seconds : 0);
        }
        return route;
    }

    Experience experience;
    double price = kPriceS;
    double unpaid = 0;
    [[nodiscard]] const Routes &routes() const { return routes_[0]; }
    /// Rank 0's time in calls and in making a communicator.
    [[nodiscard]] double spent() const { return spent_; }

  private:
    void ask() {
        double least = 1e9;
        for (const Routes &routes : routes_)
            least = std::min(least, routes.waited());
        if (!routes_[0].introduced() && least < Routes::kWorthIntroducingS) {
            for (Routes &routes : routes_)
                routes.wait_longer(least, Routes::kWorthIntroducingS);
            return;
        }
        least = 1e9;
        for (Routes &routes : routes_) {
            if (!routes.introduced())
                routes.introduce(experience, price, unpaid);
            least = std::min(least, routes.saving());
        }
        for (Routes &routes : routes_)
            if (least >= routes.price())
                routes.begin(price);
            else
                routes.wait_longer(least, routes.price());
        if (routes_[0].ready())
            spent_ += price;
    }
    void compare(CallClass which) {
        Evidence mean;
        const auto ranks = static_cast<double>(routes_.size());
        for (const Routes &routes : routes_) {
            const Evidence each = routes.measured(which);
            mean.by_turns.mpi += each.by_turns.mpi / ranks;
            mean.by_turns.flx += each.by_turns.flx / ranks;
            mean.remembered.mpi += each.remembered.mpi / ranks;
            mean.remembered.flx += each.remembered.flx / ranks;
        }
        for (Routes &routes : routes_)
            routes.settle(which, mean, 30e-6);
    }

    std::vector<Routes> routes_;
    double spent_ = 0;
};

/// FLX takes `flx`, MPI `mpi` seconds, on all ranks.
Program::Took fixed(double mpi, double flx) {
    return [=](Route route, int) { return route == Route::flx ? flx : mpi; };
}

Experience knowing(CallClass which, double mpi, double flx) {
    Experience experience(CallClass::kCount);
    experience[which.index()] = {mpi, flx};
    return experience;
}

TEST(Routes, ClassesHaveNames) {
    EXPECT_EQ(CallClass(Collective::allreduce, 0).name(), "allreduce 0");
    EXPECT_EQ(CallClass(Collective::allreduce, 1).name(), "allreduce 1");
    EXPECT_EQ(CallClass(Collective::allreduce, 8).name(), "allreduce 4");
    EXPECT_EQ(CallClass(Collective::bcast, 65536).name(), "bcast 65536");
    EXPECT_EQ(CallClass(Collective::alltoallv, kBytesUnknown).name(), "alltoallv any");
    for (size_t i = 0; i < CallClass::kCount; ++i) {
        CallClass which(0);
        ASSERT_TRUE(CallClass::from_name(CallClass(i).name(), which)) << CallClass(i).name();
        EXPECT_EQ(which.index(), i);
    }
    CallClass which(0);
    for (const char *wrong : {"", "allreduce", "allreduce ", "allredcue 4", "allreduce 4x", "allreduce -4"})
        EXPECT_FALSE(CallClass::from_name(wrong, which)) << wrong;
}

TEST(Routes, BytesOfAClassDifferByLessThanFour) {
    for (size_t bytes = 1; bytes < (size_t{1} << 40); bytes += 1 + bytes / 3) {
        const size_t of = std::stoull(CallClass(Collective::bcast, bytes).name().substr(6));
        EXPECT_LE(of, bytes);
        EXPECT_GT(4 * of, bytes);
    }
}

TEST(Routes, AShortProgramNeverLeavesMpi) {
    Program program(4);
    const CallClass barrier(Collective::barrier, 0);
    for (int call = 0; call < 1000; ++call)
        ASSERT_EQ(program.call(barrier, fixed(1e-6, 1e-7)), Route::mpi);
    EXPECT_FALSE(program.routes().ready());
}

TEST(Routes, TheFasterOneGetsTheClass) {
    for (const bool flx_is_faster : {true, false}) {
        Program program(3);
        const CallClass exchange(Collective::alltoall, 100000);
        const auto took = flx_is_faster ? fixed(1e-3, 6e-4) : fixed(1e-3, 3e-3);
        for (int call = 0; call < 20000; ++call)
            program.call(exchange, took);
        ASSERT_TRUE(program.routes().ready());
        EXPECT_EQ(program.routes().settled(exchange), flx_is_faster ? Route::flx : Route::mpi);
        EXPECT_NEAR(program.routes().times(exchange).mpi, took(Route::mpi, 0), 1e-9);
        EXPECT_NEAR(program.routes().times(exchange).flx, took(Route::flx, 0), 1e-9);
        // Some 1400 calls passed before FLX would have paid, the others are of trials.
        const uint64_t others =
            flx_is_faster ? program.routes().calls_by_mpi(exchange) : program.routes().calls_by_flx(exchange);
        EXPECT_LT(others, flx_is_faster ? 1700U : 200U);
        // All but those of the trials since the last comparison are accounted for.
        const double saved =
            static_cast<double>(program.routes().calls_by_flx(exchange)) * (took(Route::mpi, 0) - took(Route::flx, 0));
        EXPECT_NEAR(program.routes().saved(exchange), saved, 1e-6);
    }
}

// Whatever FLX takes, a program is not slower than with MPI by more than the price and a small part of its calls' time.
TEST(Routes, TheWorstCaseIsMpiAndABoundedPrice) {
    for (const double mpi : {1e-6, 3e-5, 1e-3, 0.05})
        for (const double ratio : {0.2, 0.9, 1.02, 1.5, 4.0, 30.0})
            for (const int calls : {10, 1000, 100000}) {
                Program program(2);
                const CallClass which(Collective::allreduce, 4096);
                for (int call = 0; call < calls; ++call)
                    program.call(which, fixed(mpi, ratio * mpi));
                const double alone = calls * mpi;
                // The price is paid only after kCaution / kGuess = 13 times as long with MPI. A first trial and each
                // later one may cost sixteen calls by the slower way.
                const double allowed = alone * (1 + 1.0 / 13 + 0.03) + 16 * std::max(0.0, ratio - 1) * mpi;
                EXPECT_LE(program.spent(), allowed) << mpi << " s, ratio " << ratio << ", " << calls << " calls";
            }
}

TEST(Routes, WhatEarlierRunsMeasuredSavesTheGuess) {
    const CallClass which(Collective::alltoall, 1 << 20);
    Program knows(2);
    knows.experience = knowing(which, 1e-2, 4e-3);
    Program learns(2);
    int first_known = 0;
    int first_guessed = 0;
    for (int call = 1; call < 2000; ++call) {
        if (knows.call(which, fixed(1e-2, 4e-3)) == Route::flx && first_known == 0)
            first_known = call;
        if (learns.call(which, fixed(1e-2, 4e-3)) == Route::flx && first_guessed == 0)
            first_guessed = call;
    }
    EXPECT_EQ(first_known, 20);  // 0.1 s after 17 calls; asked before calls 5, 9, 17, 20
    // 0.1 s after 134 calls at a quarter of the guess; asked before 129, 154.
    EXPECT_GE(first_guessed, 154);
    EXPECT_LE(first_guessed, 210);
}

// A program that is over before FLX pays is run again and again.
TEST(Routes, ShortRunsAddUp) {
    const CallClass which(Collective::alltoall, 1 << 20);
    double unpaid = 0;
    int runs = 0;
    for (bool tried = false; !tried && runs < 100; ++runs) {
        Program program(2);
        program.unpaid = unpaid;
        for (int call = 0; call < 40; ++call)
            program.call(which, fixed(1e-2, 4e-3));
        tried = program.routes().ready();
        unpaid += program.routes().unpaid();
    }
    EXPECT_EQ(runs, 4);  // 0.1 s at 0.03 s a run, of which it knows in the middle of the fourth
}

TEST(Routes, WhatIsKnownToBeSlowerIsNotEvenMade) {
    const CallClass which(Collective::allreduce, 8);
    Program program(2);
    program.experience = knowing(which, 1e-3, 2e-3);
    for (int call = 0; call < 100000; ++call)
        ASSERT_EQ(program.call(which, fixed(1e-3, 2e-3)), Route::mpi);
    EXPECT_FALSE(program.routes().ready());
}

TEST(Routes, AStaleExperienceIsFoundOut) {
    const CallClass which(Collective::allreduce, 1 << 20);
    Program program(2);
    program.experience = knowing(which, 1e-3, 5e-4);
    for (int call = 0; call < 5000; ++call)
        program.call(which, fixed(1e-3, 2e-3));
    EXPECT_EQ(program.routes().settled(which), Route::mpi);
}

TEST(Routes, ChangesAreNoticed) {
    const CallClass which(Collective::allreduce, 1 << 20);
    Program program(2);
    for (int call = 0; call < 5000; ++call)
        program.call(which, fixed(1e-3, 5e-4));
    EXPECT_EQ(program.routes().settled(which), Route::flx);
    for (int call = 0; call < 20000; ++call)
        program.call(which, fixed(1e-3, 4e-3));
    EXPECT_EQ(program.routes().settled(which), Route::mpi);
}

// One rank computes longer than the others before each call: what they wait is the same both ways.
TEST(Routes, WaitingForALateRankDoesNotHideWhoIsFaster) {
    Program program(3);
    const CallClass which(Collective::allreduce, 1 << 16);
    int call = 0;
    const Program::Took took = [&](Route route, int rank) {
        return (rank == call % 3 ? 0 : 0.05) + (route == Route::flx ? 5e-4 : 1e-3);
    };
    for (; call < 3000; ++call)
        program.call(which, took);
    EXPECT_EQ(program.routes().settled(which), Route::flx);
    EXPECT_NEAR(program.routes().times(which).mpi - program.routes().times(which).flx, 5e-4, 2e-4);
}

// MPI returns while the data are under way, and the next call waits until they have gone, whosever it is.
TEST(Routes, WhatMpiLeavesUnderWayIsNotCountedAgainstFlx) {
    Program program(2);
    const CallClass which(Collective::alltoall, 1 << 16);
    bool busy = false;
    for (int call = 0; call < 40000; ++call)
        program.call(which, [&](Route route, int rank) {
            const double seconds = (busy ? 9e-4 : 0) + (route == Route::flx ? 7e-4 : 1e-4);
            busy = rank == 1 ? route == Route::mpi : busy;
            return seconds;
        });
    EXPECT_EQ(program.routes().settled(which), Route::flx);
    EXPECT_NEAR(program.routes().times(which).mpi, 1e-3, 1e-5);
    EXPECT_NEAR(program.routes().times(which).flx, 7e-4, 1e-5);
}

// Under a network's queue one call in ten takes most of the time: the middle ones look fast.
TEST(Routes, AFewLongCallsCount) {
    Program program(2);
    const CallClass which(Collective::alltoall, 1 << 16);
    int number = 0;
    for (int call = 0; call < 4000; ++call)
        program.call(which, [&](Route route, int rank) {
            number += rank == 0 && route == Route::mpi ? 1 : 0;
            if (route == Route::flx)
                return 6e-4;
            return number % 10 == 0 ? 1e-2 : 2e-4;
        });
    EXPECT_EQ(program.routes().settled(which), Route::flx);
    EXPECT_GT(program.routes().calls_by_flx(which), 2000U);
}

// What a program waits for while it begins is a thousand times what its calls take, and ends before the first trial,
// during it or after it.
TEST(Routes, LongWaitsAtTheBeginningDecideNothing) {
    for (const bool flx_is_faster : {false, true})
        for (const int long_calls : {100, 170, 200, 300})
            for (unsigned seed = 1; seed <= 20; ++seed) {
                Program program(2);
                const CallClass which(Collective::allreduce, 64);
                unsigned random = seed;
                int by_the_slower = 0;
                for (int call = 0; call < 100000; ++call) {
                    random = random * 1664525U + 1013904223U;
                    const double wait = call < long_calls ? 20e-3 * ((random >> 8U) / 16777216.0) : 0;
                    const bool ready = program.routes().ready();
                    const Route route = program.call(which, [&](Route route, int) {
                        return wait + ((route == Route::flx) == flx_is_faster ? 20e-6 : 60e-6);
                    });
                    by_the_slower += ready && (route == Route::flx) != flx_is_faster ? 1 : 0;
                }
                ASSERT_TRUE(program.routes().ready());
                EXPECT_LE(by_the_slower, 2500) << long_calls << " long calls, seed " << seed
                                               << (flx_is_faster ? ", FLX" : ", MPI") << " is faster";
            }
}

TEST(Routes, ADisturbedTrialIsForgotten) {
    Program program(2);
    const CallClass which(Collective::allreduce, 65536);
    int by_flx = 0;
    for (int call = 0; call < 60000; ++call)
        program.call(which, [&](Route route, int rank) {
            by_flx += rank == 0 && route == Route::flx ? 1 : 0;
            if (route == Route::mpi)
                return 2e-3;
            return by_flx <= 16 ? 2e-2 : 1e-3;
        });
    EXPECT_EQ(program.routes().settled(which), Route::flx);
}

TEST(Routes, OneWayCallsTakeTheMeanOfTheRanks) {
    Program program(3);
    const CallClass which(Collective::bcast, 1 << 20);
    for (int call = 0; call < 40000; ++call)
        program.call(which, [](Route route, int rank) {
            if (rank == 0)
                return route == Route::flx ? 2e-4 : 1e-4;
            return route == Route::flx ? 5e-4 : 1e-3;
        });
    EXPECT_NEAR(program.routes().times(which).mpi, 7e-4, 1e-9);
    EXPECT_NEAR(program.routes().times(which).flx, 4e-4, 1e-9);
}

TEST(Routes, OnePreemptedCallDecidesNothing) {
    Program program(2);
    const CallClass which(Collective::allreduce, 64);
    int turn = 0;
    for (int call = 0; call < 200000; ++call)
        program.call(which, [&](Route route, int) {
            return (++turn % 7 == 0 ? 5e-3 : 0.0) + (route == Route::flx ? 5e-5 : 1e-4);
        });
    EXPECT_EQ(program.routes().settled(which), Route::flx);
}

TEST(Routes, ClassesAreDecidedApart) {
    Program program(2);
    const CallClass little(Collective::allreduce, 8);
    const CallClass much(Collective::allreduce, 1 << 22);
    for (int call = 0; call < 5000; ++call) {
        program.call(little, fixed(1e-3, 2e-3));
        program.call(much, fixed(1e-2, 3e-3));
    }
    EXPECT_EQ(program.routes().settled(little), Route::mpi);
    EXPECT_EQ(program.routes().settled(much), Route::flx);
    EXPECT_EQ(program.routes().settled(CallClass(Collective::bcast, 8)), Route::mpi);
    EXPECT_FALSE(program.routes().times(CallClass(Collective::bcast, 8)).known());
}

}  // namespace
}  // namespace flx::preload
