#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <fstream>

#include "runtime/plan/planner.h"
#include "runtime/plan/rules.h"
#include "runtime/schedules/loaded.h"
#include "runtime/schedules/schedule_file.h"

namespace flx::schedules {
namespace {

using algorithms::Collective;
using algorithms::Placement;
using algorithms::Written;

/// A file that is gone with its scope.
class File {
  public:
    explicit File(const std::string &text)
        : path_(testing::TempDir() + "flx_schedule_" + std::to_string(getpid()) + "_" + std::to_string(++files)) {
        std::ofstream(path_) << text;
    }
    ~File() { unlink(path_.c_str()); }
    File(const File &) = delete;
    File &operator=(const File &) = delete;
    [[nodiscard]] const std::string &path() const { return path_; }

  private:
    static inline int files = 0;
    std::string path_;
};

Written ring(int size, Collective collective = Collective::allreduce) {
    return written_of(*algorithms::find("ring"), collective, size, 0, nullptr);
}

TEST(LoadedSchedules, AreKeptOnce) {
    const File file(to_json(ring(4)));
    const File same(to_json(ring(4)));
    const File other(to_json(ring(5)));
    const Loaded *first = nullptr;
    const Loaded *again = nullptr;
    ASSERT_TRUE(load(file.path(), false, first).ok());
    EXPECT_FALSE(first->proved);
    ASSERT_TRUE(load(same.path(), true, again).ok());
    EXPECT_EQ(first, again);
    EXPECT_TRUE(first->proved);
    EXPECT_EQ(find_loaded(first->key), first);
    EXPECT_EQ(first->algorithm.name, "file:ring");
    ASSERT_TRUE(load(other.path(), true, again).ok());
    EXPECT_NE(first->key, again->key);
    EXPECT_EQ(find_loaded("ring"), nullptr);
}

TEST(LoadedSchedules, AreRefusedWithTheFileAndTheElement) {
    std::string text = to_json(ring(4));
    const std::string finish = ",\"finish\":true";
    text.erase(text.find(finish), finish.size());
    const File file(text);
    const Loaded *loaded = nullptr;
    EXPECT_TRUE(load(file.path(), false, loaded).ok()) << "nobody looked";
    const Status status = load(file.path(), true, loaded);
    EXPECT_EQ(status.fault(), Fault::schedule_file);
    for (const std::string &part : {file.path(), std::string("output element"), std::string("not finished")})
        EXPECT_NE(status.sentence().find(part), std::string::npos) << status.sentence();
    EXPECT_EQ(load("/there/is/none", true, loaded).fault(), Fault::schedule_file);
    EXPECT_EQ(load(testing::TempDir(), true, loaded).fault(), Fault::schedule_file);
}

TEST(LoadedSchedules, OfSixtyFourRanksTakeLessThanASecond) {
    const File file(to_json(ring(64)));
    const Loaded *loaded = nullptr;
    // Of this process, as the machine may have other things to do.
    const std::clock_t begin = std::clock();
    ASSERT_TRUE(load(file.path(), false, loaded).ok());
    const std::clock_t read = std::clock();
    ASSERT_TRUE(load(file.path(), true, loaded).ok());
    const auto seconds = [](std::clock_t time) { return static_cast<double>(time) / CLOCKS_PER_SEC; };
    RecordProperty("read_s", std::to_string(seconds(read - begin)));
    RecordProperty("proved_s", std::to_string(seconds(std::clock() - read)));
    // Far from what they take, as builds with sanitizers are slower.
    EXPECT_LT(seconds(read - begin), 2);
    EXPECT_LT(seconds(std::clock() - read), 10);
}

TEST(LoadedSchedules, StandInRules) {
    Written four = ring(4);
    four.name = "four";
    const File schedule(to_json(four));
    const File rules_file("# by hand\nallreduce:file:" + schedule.path() + "@64K-  # long ones\n");
    std::string rules;
    const Status status = read_rule_files("bcast:ring,file:" + rules_file.path(), rules);
    ASSERT_TRUE(status.ok()) << status.sentence();
    const Loaded *loaded = nullptr;
    ASSERT_TRUE(load(schedule.path(), false, loaded).ok());
    EXPECT_TRUE(loaded->proved);
    EXPECT_EQ(rules, "bcast:ring,allreduce:file:" + loaded->key + "@64K-");

    std::unique_ptr<Planner> planner;
    Agreed agreed{.size = 4, .hosts = 4};
    ASSERT_TRUE(Planner::make(0, agreed, rules, planner).ok());
    EXPECT_STREQ(planner->choose(Collective::allreduce, 64 << 10).name(), "file:four");
    EXPECT_STREQ(planner->choose(Collective::allreduce, (64 << 10) - 1).name(), "ring");
    const Plan &plan = planner->plan(Collective::allreduce, planner->choose(Collective::allreduce, 1 << 20), 0);
    EXPECT_EQ(plan.schedule().steps.size(), ring(4).schedules[0].steps.size());
    const auto all = planner->all_candidates(Collective::allreduce, 1 << 20);
    const auto is_it = [](const Planner::Candidate &one) { return std::string(one.choice.name()) == "file:four"; };
    EXPECT_EQ(std::ranges::count_if(all, is_it), 1);
    // By that name it can be had again, without the file.
    std::string again;
    ASSERT_TRUE(read_rule_files("allreduce:file:four@1M-", again).ok());
    EXPECT_EQ(again, "allreduce:file:" + loaded->key + "@1M-");
    // Not in the order of ranks.
    EXPECT_STREQ(planner->choose(Collective::allreduce, 1 << 20, {.in_order = true}).name(), "direct");

    agreed.size = 5;
    const Status wrong = Planner::make(0, agreed, rules, planner);
    EXPECT_EQ(wrong.fault(), Fault::algorithm_rule);
    EXPECT_NE(wrong.sentence().find("for 4 ranks, and the communicator has 5"), std::string::npos) << wrong.sentence();
    agreed.part = true;
    EXPECT_TRUE(Planner::make(0, agreed, rules, planner).ok());
}

TEST(LoadedSchedules, AreForTheirCollectiveAndHosts) {
    const File gathers(to_json(ring(4, Collective::allgather)));
    std::string rules;
    const Status status = read_rule_files("allreduce:file:" + gathers.path(), rules);
    EXPECT_EQ(status.fault(), Fault::algorithm_rule);
    EXPECT_NE(status.sentence().find("schedules of allgather"), std::string::npos) << status.sentence();

    const Placement pairs = Placement::of({0, 0, 1, 1});
    const File lanes(to_json(written_of(*algorithms::find("lanes(direct,ring)"), Collective::allreduce, 4, 0, &pairs)));
    ASSERT_TRUE(read_rule_files("allreduce:file:" + lanes.path(), rules).ok());
    std::unique_ptr<Planner> planner;
    EXPECT_TRUE(Planner::make(0, {.size = 4, .hosts = 2, .placement = pairs}, rules, planner).ok());
    const Status elsewhere =
        Planner::make(0, {.size = 4, .hosts = 2, .placement = Placement::of({0, 1, 0, 1})}, rules, planner);
    EXPECT_EQ(elsewhere.fault(), Fault::algorithm_rule);
    EXPECT_NE(elsewhere.sentence().find("on hosts 0,0,1,1, and here they are on hosts 0,1,0,1"), std::string::npos)
        << elsewhere.sentence();
}

}  // namespace
}  // namespace flx::schedules
