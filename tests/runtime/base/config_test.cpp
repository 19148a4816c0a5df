#include "runtime/base/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "runtime/api/report.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

namespace flx {
namespace {

/// Sets a variable for one test.
class Environment : public testing::Test {
  protected:
    void set(const std::string &name, const std::string &value) {
        setenv(name.c_str(), value.c_str(), 1);
        names_.push_back(name);
    }
    std::string refusal() {
        Config config;
        const Status status = Config::from_environment(config);
        EXPECT_EQ(status.code(), FLX_ERR_CONFIG);
        for (const Knob &knob : knobs())
            EXPECT_EQ(config.origin(knob.name), "default");
        clear();
        return status.sentence();
    }
    void clear() {
        for (const std::string &name : names_)
            unsetenv(name.c_str());
        names_.clear();
    }
    void TearDown() override { clear(); }

  private:
    std::vector<std::string> names_;
};

TEST_F(Environment, Defaults) {
    Config config;
    ASSERT_TRUE(Config::from_environment(config).ok());
    EXPECT_EQ(config.real("FLX_DEADLINE"), 30);
    EXPECT_EQ(config.real("FLX_LATE_WARNING"), 10);
    EXPECT_EQ(config.integer("FLX_PROBE_MS"), 200);
    EXPECT_EQ(config.integer("FLX_SPIN_US"), -1);
    EXPECT_EQ(config.integer("FLX_CHECK"), 0);
    EXPECT_EQ(config.size("FLX_SHM_BYTES"), size_t{4} << 20);
    EXPECT_EQ(config.size("FLX_FUSED_BYTES"), size_t{32} << 10);
    EXPECT_EQ(config.size("FLX_RAIL_WINDOW"), size_t{2} << 20);
    EXPECT_EQ(config.size("FLX_RAIL_CHUNK"), size_t{128} << 10);
    EXPECT_EQ(config.text("FLX_LOG"), "warn");
    EXPECT_EQ(config.text("FLX_LINKS"), "auto");
    EXPECT_EQ(config.text("FLX_RAILS"), "auto");
    EXPECT_EQ(config.text("FLX_PARTITION"), "");
    EXPECT_EQ(config.origin("FLX_LOG"), "default");
}

TEST_F(Environment, ValuesAndOrigins) {
    set("FLX_DEADLINE", "2.5");
    set("FLX_SHM_BYTES", "16M");
    set("FLX_PARTITION", "shm:.9,eth0:.1");
    set("FLX_LOG", "debug");
    set("FLX_TEST_ANYTHING", "1");
    Config config;
    ASSERT_TRUE(Config::from_environment(config).ok());
    EXPECT_EQ(config.real("FLX_DEADLINE"), 2.5);
    EXPECT_EQ(config.size("FLX_SHM_BYTES"), size_t{16} << 20);
    EXPECT_EQ(config.value("FLX_SHM_BYTES"), "16M");
    EXPECT_EQ(config.text("FLX_PARTITION"), "shm:.9,eth0:.1");
    EXPECT_EQ(config.text("FLX_LOG"), "debug");
    EXPECT_EQ(config.origin("FLX_DEADLINE"), "environment");
    EXPECT_EQ(config.origin("FLX_STRICT"), "default");

    ASSERT_TRUE(config.set("FLX_DEADLINE", "60", "flx_config_t").ok());
    EXPECT_EQ(config.real("FLX_DEADLINE"), 60);
    EXPECT_EQ(config.origin("FLX_DEADLINE"), "flx_config_t");
    const Status refused = config.set("FLX_DEADLINE", "0", "flx_config_t");
    EXPECT_EQ(refused.code(), FLX_ERR_CONFIG);
    EXPECT_NE(refused.sentence().find("FLX_DEADLINE is \"0\" (from flx_config_t); a number"), std::string::npos);
    EXPECT_EQ(config.set("FLX_NOTHING", "0", "flx_config_t").code(), FLX_ERR_CONFIG);
    EXPECT_EQ(config.real("FLX_DEADLINE"), 60);
}

TEST_F(Environment, ForReportsWhatIsRightIsTaken) {
    set("FLX_DEADLINE", "soon");
    set("FLX_PROBE_MS", "77");
    set("FLX_PARTITON", "shm:1");
    Config config;
    std::vector<Status> wrong;
    Config::from_environment(config, wrong);
    EXPECT_EQ(config.integer("FLX_PROBE_MS"), 77);
    EXPECT_EQ(config.origin("FLX_DEADLINE"), "default");
    ASSERT_EQ(wrong.size(), 2U);
    EXPECT_EQ(wrong[0].code(), FLX_ERR_CONFIG);
    EXPECT_NE(wrong[0].sentence(), wrong[1].sentence());
}

TEST_F(Environment, UnknownNameNamesTheNearest) {
    set("FLX_DEDLINE", "30");
    const std::string sentence = refusal();
    EXPECT_EQ(sentence,
              "FLX_DEDLINE is not a knob of FLX; did you mean FLX_DEADLINE? flx_info --knobs lists all [FLX-E201]");
    set("FLX_RAIL", "eth0");
    EXPECT_NE(refusal().find("did you mean FLX_RAILS?"), std::string::npos);
    set("FLX_", "");
    EXPECT_EQ(refusal().find("FLX_ is not a knob"), 0u);
}

TEST_F(Environment, SentencesSayWhatIsAllowed) {
    const auto sentence = [&](const char *name, const char *value) {
        set(name, value);
        return refusal();
    };
    EXPECT_EQ(sentence("FLX_DEADLINE", "abc"),
              "FLX_DEADLINE is \"abc\"; a number of seconds from 0.1 to 86400 is allowed [FLX-E202]");
    EXPECT_EQ(sentence("FLX_CHECK", "yes"), "FLX_CHECK is \"yes\"; 0 or 1 is allowed [FLX-E202]");
    EXPECT_EQ(sentence("FLX_PROBE_MS", "10001"),
              "FLX_PROBE_MS is \"10001\"; a whole number of milliseconds from 0 to 10000 is "
              "allowed [FLX-E202]");
    EXPECT_EQ(sentence("FLX_SHM_BYTES", "1K"),
              "FLX_SHM_BYTES is \"1K\"; a size in bytes from 256K to 1G (K, M, G: powers of 1024) "
              "is allowed [FLX-E202]");
    EXPECT_EQ(sentence("FLX_LOG", "loud"), "FLX_LOG is \"loud\"; error, warn, info or debug is allowed [FLX-E202]");
}

TEST_F(Environment, ValuesThatAreRefused) {
    const std::pair<const char *, const char *> bad[] = {{"FLX_DEADLINE", ""},
                                                         {"FLX_DEADLINE", "nan"},
                                                         {"FLX_DEADLINE", "inf"},
                                                         {"FLX_DEADLINE", "30s"},
                                                         {"FLX_DEADLINE", "0.05"},
                                                         {"FLX_DEADLINE", "-1"},
                                                         {"FLX_CHECK", "2"},
                                                         {"FLX_CHECK", "1.0"},
                                                         {"FLX_CHECK", " 1"},
                                                         {"FLX_SPIN_US", "-2"},
                                                         {"FLX_PROBE_MS", "99999999999999999999"},
                                                         {"FLX_SHM_BYTES", "4MB"},
                                                         {"FLX_SHM_BYTES", "2G"},
                                                         {"FLX_SHM_BYTES", "-4M"},
                                                         {"FLX_LOG", ""},
                                                         {"FLX_LOG", "warn|info"},
                                                         {"FLX_LOG", "WARN"}};
    for (const auto &[name, value] : bad) {
        set(name, value);
        EXPECT_NE(refusal().find("allowed"), std::string::npos) << name << "=" << value;
    }
}

TEST(Knobs, AreWellFormed) {
    EXPECT_TRUE(
        std::is_sorted(knobs().begin(), knobs().end(), [](const Knob &a, const Knob &b) { return a.name < b.name; }));
    Config config;
    for (const Knob &knob : knobs()) {
        EXPECT_TRUE(knob.name.starts_with("FLX_"));
        EXPECT_FALSE(knob.name.starts_with("FLX_TEST_"));
        EXPECT_FALSE(knob.doc.empty());
        EXPECT_TRUE(config.set(knob.name, knob.fallback, "default").ok()) << knob.name;
    }
}

/// What a user can set fits on a page.
TEST(Knobs, OfUsersAreFew) {
    constexpr int kMost = 22;
    EXPECT_LE(
        std::count_if(knobs().begin(), knobs().end(), [](const Knob &knob) { return knob.tier == KnobTier::user; }),
        kMost);
}

TEST(Knobs, AreComparedByValue) {
    Config one;
    Config other;
    ASSERT_TRUE(one.set("FLX_SHM_BYTES", "1M", "environment").ok());
    ASSERT_TRUE(other.set("FLX_SHM_BYTES", "1024K", "environment").ok());
    ASSERT_TRUE(other.set("FLX_LOG", "debug", "environment").ok());
    ASSERT_TRUE(other.set("FLX_CUDA_STAGING", "64M", "environment").ok());
    const std::string said = one.values_of(KnobScope::communicator);
    EXPECT_EQ(said, other.values_of(KnobScope::communicator)) << "of other scopes, or written otherwise";
    EXPECT_NE(said.find("FLX_SHM_BYTES=1048576"), std::string::npos) << said;
    EXPECT_NE(one.values_of(KnobScope::gpus), other.values_of(KnobScope::gpus));
    ASSERT_TRUE(other.set("FLX_STRICT", "1", "environment").ok());
    EXPECT_NE(said, other.values_of(KnobScope::communicator));
}

TEST(Knobs, OnlyThoseThatDifferAreNamed) {
    Config one;
    Config other;
    ASSERT_TRUE(one.set("FLX_LINKS", "shm, eth0", "environment").ok());
    ASSERT_TRUE(other.set("FLX_LINKS", "shm, eth0", "environment").ok());
    const auto sentence = [&] {
        const Status status =
            compare_knobs(2, one.values_of(KnobScope::communicator), 5, other.values_of(KnobScope::communicator));
        EXPECT_EQ(status.code(), status.sentence().empty() ? FLX_SUCCESS : FLX_ERR_CONFIG);
        return status.sentence();
    };
    EXPECT_EQ(sentence(), "");
    ASSERT_TRUE(one.set("FLX_STRICT", "1", "environment").ok());
    EXPECT_EQ(sentence(),
              "rank 2 has FLX_STRICT=1, rank 5 has FLX_STRICT=0; these must be equal on all ranks [FLX-E203]");
    ASSERT_TRUE(other.set("FLX_ALGORITHM", "bcast:direct", "environment").ok());
    EXPECT_EQ(sentence(),
              "rank 2 has FLX_ALGORITHM= FLX_STRICT=1, rank 5 has FLX_ALGORITHM=bcast:direct FLX_STRICT=0; "
              "these must be equal on all ranks [FLX-E203]");
}

/// What flx_info prints without a communicator. Values that are asked for by a wrong type are found where assertions
/// are on, as in builds with AddressSanitizer.
TEST_F(Environment, ReportNamesEveryKnob) {
    set("FLX_DEADLINE", "2.5");
    set("FLX_SHM_BYTES", "3M");
    std::vector<std::string> lines;
    {
#ifdef __SANITIZE_ADDRESS__
        // What it says of the machine comes from plug-ins that leak, and are unloaded before leaks are looked for.
        const __lsan::ScopedDisabler plugins_leak;
#endif
        (void)report(nullptr, lines);  // what it says of the machine may be incomplete
    }
    const auto section = std::find(lines.begin(), lines.end(), "[knobs]");
    ASSERT_NE(section, lines.end());
    for (const Knob &knob : knobs())
        EXPECT_TRUE(std::any_of(section, lines.end(), [&](const std::string &line) {
            return line.starts_with("  " + std::string(knob.name) + " ");
        })) << knob.name;
    const auto has = [&](std::string_view name, std::string_view value) {
        return std::any_of(section, lines.end(), [&](const std::string &line) {
            return line.find(name) != std::string::npos && line.find(value) != std::string::npos &&
                   line.find("environment") != std::string::npos;
        });
    };
    EXPECT_TRUE(has("FLX_DEADLINE", " 2.5 "));
    EXPECT_TRUE(has("FLX_SHM_BYTES", " 3M "));
}

TEST(ParseSize, Sizes) {
    const auto parse = [](std::string_view text) {
        size_t bytes = 0;
        EXPECT_TRUE(parse_size(text, bytes).ok()) << text;
        return bytes;
    };
    EXPECT_EQ(parse("0"), 0u);
    EXPECT_EQ(parse("8"), 8u);
    EXPECT_EQ(parse("1K"), 1024u);
    EXPECT_EQ(parse("3k"), 3072u);
    EXPECT_EQ(parse("64M"), size_t{64} << 20);
    EXPECT_EQ(parse("2G"), size_t{2} << 30);
    EXPECT_EQ(parse("18446744073709551615"), ~size_t{0});
    size_t bytes = 7;
    for (const char *text : {"", "K", "-1", "1.5M", "1KB", "1 K", "18446744073709551616", "18446744073709551615K"})
        EXPECT_EQ(parse_size(text, bytes).code(), FLX_ERR_ARGUMENT) << text;
    EXPECT_EQ(bytes, 7u);
}

}  // namespace
}  // namespace flx
