#include "runtime/schedules/schedule_file.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace flx::schedules {
namespace {

using algorithms::Algorithm;
using algorithms::BitClass;
using algorithms::Collective;
using algorithms::Placement;
using algorithms::Schedule;
using algorithms::Step;
using algorithms::Written;

/// Steps that one waits for: always, and in place.
std::pair<std::set<uint32_t>, std::set<uint32_t>> waits(const Step &step) {
    std::pair<std::set<uint32_t>, std::set<uint32_t>> result;
    for (uint8_t d = 0; d < step.dependencies; ++d) {
        result.second.insert(step.after[d]);
        if (step.holds(d, false))
            result.first.insert(step.after[d]);
    }
    return result;
}

bool same(const Step &one, const Step &other) {
    return one.kind == other.kind && one.phase == other.phase && one.received_first == other.received_first &&
           one.finish == other.finish && one.group == other.group && one.peer == other.peer &&
           one.block == other.block && one.from == other.from && one.to == other.to && waits(one) == waits(other);
}

bool same(const Schedule &one, const Schedule &other) {
    return one.blocks == other.blocks && one.phases == other.phases && one.input == other.input &&
           one.output == other.output && one.scratch_slots == other.scratch_slots && one.groups == other.groups &&
           std::ranges::equal(one.steps, other.steps, [](const Step &a, const Step &b) { return same(a, b); });
}

void check_round_trip(const Written &written, const std::string &what) {
    Written read;
    const Status status = read_schedule(to_json(written), "", read);
    ASSERT_TRUE(status.ok()) << what << ": " << status.sentence();
    EXPECT_EQ(read.name, written.name) << what;
    EXPECT_EQ(read.description, written.description) << what;
    EXPECT_EQ(read.source, written.source) << what;
    EXPECT_EQ(read.collective, written.collective) << what;
    EXPECT_EQ(read.root, written.root) << what;
    EXPECT_EQ(read.host_of, written.host_of) << what;
    EXPECT_EQ(read.bits, algorithms::can_be_proved(written.bits) ? written.bits : BitClass::own) << what;
    ASSERT_EQ(read.schedules.size(), written.schedules.size()) << what;
    for (size_t rank = 0; rank < read.schedules.size(); ++rank)
        EXPECT_TRUE(same(read.schedules[rank], written.schedules[rank])) << what << ", rank " << rank;
    EXPECT_EQ(to_json(read), to_json(written)) << what;
}

TEST(ScheduleFile, GivesBackWhatEveryAlgorithmMakes) {
    int files = 0;
    for (const Algorithm &algorithm : algorithms::all()) {
        for (const Collective collective : algorithms::kScheduled) {
            for (int size = 1; size <= 9; ++size) {
                if (!algorithm.serves(collective, size))
                    continue;
                std::vector<int> host_of;
                for (int rank = 0; rank < size; ++rank)
                    host_of.push_back(rank / 3);
                const Placement placement = Placement::of(host_of);
                const Written written =
                    written_of(algorithm, collective, size, algorithms::rooted(collective) ? size - 1 : 0, &placement);
                check_round_trip(written, std::string(algorithm.name) + " " +
                                              std::string(algorithms::name_of(collective)) + " " +
                                              std::to_string(size));
                ++files;
            }
        }
    }
    EXPECT_GT(files, 400);
}

/// A right file of two ranks, in which tests make something wrong.
constexpr const char *kRight = R"({
  "format": "flx-schedule", "version": 1, "name": "pair", "collective": "allreduce", "ranks": 2,
  "order": "rank_order", "blocks": 2, "phases": 2,
  "schedules": [
    {"rank": 0, "groups": [[0, 1]], "steps": [
      {"do": "send", "peer": 1, "phase": 0, "block": 1, "from": "input"},
      {"do": "gather_reduce", "group": 0, "phase": 0, "block": 0, "from": "input", "to": "output", "finish": true},
      {"do": "send", "peer": 1, "phase": 1, "block": 0, "from": "output", "after": [1]},
      {"do": "recv", "peer": 1, "phase": 1, "block": 1, "to": "output"}]},
    {"rank": 1, "groups": [[0, 1]], "steps": [
      {"do": "send", "peer": 0, "phase": 0, "block": 0, "from": "input"},
      {"do": "gather_reduce", "group": 0, "phase": 0, "block": 1, "from": "input", "to": "output", "finish": true},
      {"do": "send", "peer": 0, "phase": 1, "block": 1, "from": "output", "after": [1]},
      {"do": "recv", "peer": 0, "phase": 1, "block": 0, "to": "output"}]}
  ]
})";

/// `old`, which is there, by `fresh`, the first time that it stands after `behind`.
std::string changed(std::string text, const std::string &old, const std::string &fresh,
                    const std::string &behind = "") {
    const size_t at = text.find(old, text.find(behind));
    EXPECT_NE(at, std::string::npos) << old;
    return text.replace(at, old.size(), fresh);
}

TEST(ScheduleFile, MayBeWrittenByHand) {
    Written written;
    const Status status = read_schedule(kRight, "", written);
    ASSERT_TRUE(status.ok()) << status.sentence();
    EXPECT_EQ(written.name, "pair");
    EXPECT_EQ(written.size(), 2);
    EXPECT_EQ(written.bits, BitClass::rank_order);
    EXPECT_EQ(algorithms::prove(written), "");
    check_round_trip(written, "pair");
}

TEST(ScheduleFile, SaysWhatIsWrongAndWhere) {
    struct Wrong {
        const char *old;
        const char *fresh;
        std::vector<const char *> says;
        const char *behind = "";
    };
    const std::vector<Wrong> all = {
        {"\"flx-schedule\"", "\"other\"", {"\"format\" is not \"flx-schedule\""}},
        {"\"version\": 1", "\"version\": 2", {"\"version\" is 2", "from 1 to 1"}},
        {"\"version\": 1", "\"version\": 1, \"speed\": 3", {"\"speed\" is not known", "collective"}},
        {"\"pair\"", "\"a,b\"", {"\"name\" is \"a,b\"", "letters"}},
        {"\"allreduce\"", "\"alltoall\"", {"\"collective\" is \"alltoall\"", "allreduce, reduce_scatter_block"}},
        {"\"ranks\": 2", "\"ranks\": 3", {"there are schedules of 2 ranks", "3"}},
        {"\"ranks\": 2", "\"ranks\": 2, \"root\": 0", {"\"root\" is 0", "allreduce has no root"}},
        {"\"ranks\": 2", "\"ranks\": 2, \"hosts\": [0]", {"\"hosts\"", "2 ranks"}},
        {"\"rank_order\"", "\"random\"", {"\"order\" is \"random\"", "rank_order, ring"}},
        {"\"blocks\": 2", "\"blocks\": 0", {"\"blocks\" is 0", "from 1 to 65536"}},
        {"\"blocks\": 2", "\"blocks\": \"2\"", {"\"blocks\" is \"2\"", "a number"}},
        {"\"phases\": 2", "\"phases\": 256", {"\"phases\" is 256", "255"}},
        {"\"schedules\"", "\"schedule\"", {"\"schedule\" is not known"}},
        {"\"rank\": 1", "\"rank\": 0", {"rank 1", "\"rank\" is 0"}},
        {"\"groups\": [[0, 1]]", "\"groups\": [0, 1]", {"rank 0", "\"groups\" is 0", "a list"}},
        {"\"do\": \"send\"", "\"do\": \"push\"", {"rank 0, step 0", "\"do\" is \"push\"", "send, recv"}},
        {"\"do\": \"send\", ", "", {"rank 1, step 0", "\"do\" is not there"}, "\"rank\": 1"},
        {"\"peer\": 1", "\"peer\": -1", {"rank 0, step 0", "\"peer\" is -1"}},
        {"\"peer\": 1", "\"peer\": 1.5", {"rank 0, step 0", "\"peer\" is 1.5"}},
        {"\"from\": \"input\"", "\"from\": \"inputs\"", {"rank 0, step 0", "\"from\" is \"inputs\"", "scratch N"}},
        {"\"from\": \"input\"", "\"from\": \"scratch 65535\"", {"rank 0, step 0", "scratch 65535"}},
        {"\"from\": \"input\"", "\"from\": \"input\", \"to\": \"output\"", {"rank 0, step 0", "\"to\" is not known"}},
        {"\"finish\": true", "\"finish\": 1", {"rank 0, step 1", "\"finish\" is 1", "true or false"}},
        {"\"after\": [1]", "\"after\": [2]", {"rank 0, step 2", "\"after\" is [2]", "from 0 to 1"}},
        {"\"after\": [1]", "\"after\": [0, 1, 0, 1, 0]", {"rank 0, step 2", "4 at most"}},
        {"\"after\": [1]", "\"after\": [1, 1]", {"rank 0, step 2", "\"after\" is [1,1]", "once"}},
        {"\"after\": [1]", "\"after\": [1], \"only_in_place\": [0]", {"rank 0, step 2", "\"only_in_place\" is [0]"}},
        {"\"from\": \"input\"", "\"from\": \"input\", \"after\": [0]", {"rank 0, step 0", "first step"}},
        {"{\"do\": \"send\"", "7, {\"do\": \"send\"", {"rank 0, step 0", "it is 7"}},
        {"\"block\": 1,", "\"block\": 1", {"no JSON", "line 6"}},
    };
    for (const Wrong &wrong : all) {
        const std::string text = changed(kRight, wrong.old, wrong.fresh, wrong.behind);
        Written written;
        const Status status = read_schedule(text, "", written);
        EXPECT_EQ(status.fault(), Fault::schedule_file) << wrong.fresh;
        for (const char *part : wrong.says)
            EXPECT_NE(status.sentence().find(part), std::string::npos) << wrong.fresh << ": " << status.sentence();
    }
}

TEST(ScheduleFile, IsRefusedWhereItIsNone) {
    Written written;
    for (const auto &[text, why] :
         {std::pair{"", "nothing in it"}, std::pair{" \n", "nothing in it"}, std::pair{"[1, 2]", "no schedule"},
          std::pair{"7", "no schedule"}, std::pair{"{}", "no schedule"}, std::pair{"{", "no JSON"},
          std::pair{"<algo", "no XML: line 1"}, std::pair{"<other/>", "no element \"algo\""}}) {
        const Status status = read_schedule(text, "", written);
        ASSERT_FALSE(status.ok()) << text;
        EXPECT_NE(status.sentence().find(why), std::string::npos) << status.sentence();
    }
}

TEST(ScheduleFile, IsComparedByItsText) {
    EXPECT_EQ(hash_of("a"), hash_of("a"));
    EXPECT_NE(hash_of("a"), hash_of("b"));
    EXPECT_GT(hash_of(""), algorithms::all().size());
}

}  // namespace
}  // namespace flx::schedules
