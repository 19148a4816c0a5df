#include "runtime/base/faults.h"

#include <gtest/gtest.h>

#include <new>
#include <set>
#include <stdexcept>
#include <string>

#include "runtime/base/config.h"
#include "runtime/base/status.h"

namespace flx {
namespace {

TEST(Faults, HaveOneNumberOneNameAndOneTitleEach) {
    std::set<uint16_t> numbers;
    std::set<std::string_view> names, titles;
    for (const FaultKind &kind : kFaults) {
        EXPECT_TRUE(numbers.insert(number_of(kind.fault)).second) << kind.name;
        EXPECT_TRUE(names.insert(kind.name).second) << kind.name;
        EXPECT_TRUE(titles.insert(kind.title).second) << kind.title;
        EXPECT_FALSE(kind.title.ends_with(".")) << kind.title;
    }
}

/// The first digit is the status, so that every one has a name.
TEST(Faults, HaveTheStatusThatTheirNumberSays) {
    for (const FaultKind &kind : kFaults) {
        EXPECT_NE(status_of(kind.fault), FLX_SUCCESS) << kind.name;
        EXPECT_FALSE(name_of(status_of(kind.fault)).empty()) << kind.name;
        EXPECT_EQ(fault_of(number_of(kind.fault)), kind.fault);
    }
    EXPECT_EQ(status_of(Fault::peer_died), FLX_ERR_PEER);
    EXPECT_EQ(status_of(Fault::unexpected), FLX_ERR_SYSTEM);
    EXPECT_FALSE(is_fault(0));
    EXPECT_FALSE(is_fault(FLX_ERR_PEER)) << "what versions before this one sent";
    EXPECT_EQ(fault_of(FLX_ERR_PEER), Fault::unexpected);
}

TEST(Sentences, EndWithTheirCodeOnce) {
    const Status status = fail(Fault::peer_died, "rank {} died", 3);
    EXPECT_EQ(status.code(), FLX_ERR_PEER);
    EXPECT_EQ(status.number(), 601);
    EXPECT_EQ(status.sentence(), "rank 3 died [FLX-E601]");
    EXPECT_EQ(status.words(), "rank 3 died");
    EXPECT_EQ(status.behind("host h: ").sentence(), "host h: rank 3 died [FLX-E601]");
    EXPECT_EQ(fail(Fault::aborted, "aborted: {}", status.sentence()).sentence(), "aborted: rank 3 died [FLX-E603]");
    EXPECT_EQ(Status().sentence(), "");
    EXPECT_EQ(Status().words(), "");
    EXPECT_EQ(Status().number(), 0);
}

TEST(Sentences, KeepTheirCodeWhereTheyLoseWords) {
    const std::string sentence = fail(Fault::peer_died, "{}", std::string(100, 'w')).sentence();
    EXPECT_EQ(shortened(sentence, 200), sentence);
    EXPECT_EQ(shortened(sentence, 20), "wwwwwwwww [FLX-E601]");
    EXPECT_EQ(shortened("without a code", 7), "without");
    EXPECT_EQ(mark_in(""), "");
    EXPECT_EQ(mark_in("[FLX-E601]"), "");
    EXPECT_EQ(mark_in(" [FLX-E601]"), " [FLX-E601]");
}

TEST(Provoked, ByExceptions) {
    const Status unexpected = thrown(std::runtime_error("as the test wishes"), "this call");
    EXPECT_EQ(unexpected.sentence(), "this call failed: as the test wishes [FLX-E819]");
    const Status no_memory = thrown(std::bad_alloc(), "this call");
    EXPECT_EQ(no_memory.fault(), Fault::no_memory);
    EXPECT_EQ(no_memory.sentence().find("this call failed: there is no memory"), 0U) << no_memory.sentence();
}

TEST(Provoked, ByASizeThatIsNone) {
    size_t bytes = 77;
    const Status status = parse_size("64 M", bytes);
    EXPECT_EQ(status.fault(), Fault::not_a_size);
    EXPECT_NE(status.sentence().find("\"64 M\""), std::string::npos) << status.sentence();
    EXPECT_EQ(bytes, 77U);
}

}  // namespace
}  // namespace flx
