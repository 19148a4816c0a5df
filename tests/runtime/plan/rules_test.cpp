#include "runtime/plan/rules.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <utility>

namespace flx {
namespace {

/// A file with `text` that is gone with its scope.
class File {
  public:
    explicit File(const std::string &text) : path_(testing::TempDir() + "flx_rules_" + std::to_string(getpid())) {
        std::ofstream(path_) << text;
    }
    ~File() { unlink(path_.c_str()); }
    File(const File &) = delete;
    File &operator=(const File &) = delete;
    [[nodiscard]] const std::string &path() const { return path_; }

  private:
    std::string path_;
};

TEST(Rules, AreReadFromText) {
    std::vector<Rule> rules;
    ASSERT_TRUE(parse_rules("allreduce:ring@64K-1M,bcast:x@-8,alltoall:exchange,scan:y@3-", rules).ok());
    ASSERT_EQ(rules.size(), 4U);
    EXPECT_EQ(rules[0].name, "ring");
    EXPECT_FALSE(rules[0].covers(algorithms::Collective::allreduce, (64U << 10) - 1));
    EXPECT_TRUE(rules[0].covers(algorithms::Collective::allreduce, 64U << 10));
    EXPECT_TRUE(rules[0].covers(algorithms::Collective::allreduce, (1U << 20) - 1));
    EXPECT_FALSE(rules[0].covers(algorithms::Collective::allreduce, 1U << 20));
    EXPECT_FALSE(rules[0].covers(algorithms::Collective::reduce, 64U << 10));
    EXPECT_EQ(rules[1].end, 8U);
    EXPECT_EQ(rules[1].from, 0U);
    EXPECT_EQ(rules[2].end, SIZE_MAX);
    EXPECT_EQ(rules[3].from, 3U);
    ASSERT_TRUE(parse_rules("", rules).ok());
    EXPECT_TRUE(rules.empty());
}

TEST(Rules, AreReadFromAFile) {
    const File file("# chosen by hand\n\n  allreduce:ring@64K-   # large\nbcast:direct@-4K\r\n");
    std::string rules;
    const Status status = read_rule_files("scan:a,file:" + file.path() + ",reduce:b", rules);
    ASSERT_TRUE(status.ok()) << status.sentence();
    EXPECT_EQ(rules, "scan:a,allreduce:ring@64K-,bcast:direct@-4K,reduce:b");
}

TEST(Rules, SayWhatIsWrong) {
    std::vector<Rule> rules;
    for (const auto &[text, why] :
         {std::pair{"ring", "does not say for which collective"},
          std::pair{"alreduce:ring", "\"alreduce\" is no collective"},
          std::pair{"bcast:x,allgatherv:ring", "takes what allgather does"},
          std::pair{"reduce_scatter:ring", "takes what reduce_scatter_block does"},
          std::pair{"send_recv:direct", "messages between pairs"}, std::pair{"allreduce:ring@64K", "as 64K-1M"},
          std::pair{"gatherv:exchange@-64K", "gatherv goes by the lengths of its messages, which only their ends know"},
          std::pair{"allreduce:ring@1M-64K", "covers no size"}}) {
        const Status status = parse_rules(text, rules);
        EXPECT_EQ(status.code(), FLX_ERR_CONFIG) << text;
        EXPECT_EQ(status.fault(), Fault::algorithm_rule) << text;
        EXPECT_NE(status.sentence().find(why), std::string::npos) << status.sentence();
    }
}

TEST(Rules, OfAFileAreErrorsWithTheirLine) {
    const File file("allreduce:ring\nallredoce:ring\n");
    std::string rules;
    const Status status = read_rule_files("file:" + file.path(), rules);
    EXPECT_EQ(status.code(), FLX_ERR_CONFIG);
    for (const std::string &part :
         {file.path() + ", line 2", std::string("\"allredoce:ring\""), std::string("allgather")})
        EXPECT_NE(status.sentence().find(part), std::string::npos) << status.sentence();
    for (const char *none : {"file:/nonexistent/rules", "file:/tmp", "file:"})
        EXPECT_EQ(read_rule_files(none, rules).fault(), Fault::rule_file) << none;
}

}  // namespace
}  // namespace flx
