#include "runtime/front/mpi/routing/tuning_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace flx::preload {
namespace {

namespace fs = std::filesystem;

const Shape kShape{8, 2, 4};
const CallClass kBcast(Collective::bcast, 4096);
const CallClass kAny(Collective::gatherv, kBytesUnknown);
constexpr int64_t kNow = 1'790'000'000;

class TuningCacheTest : public testing::Test {
  public:
    TuningCacheTest(const TuningCacheTest &) = delete;
    TuningCacheTest &operator=(const TuningCacheTest &) = delete;

  protected:
    TuningCacheTest() {
        std::string name = fs::temp_directory_path() / "flx-cache-XXXXXX";
        folder_ = fs::path(mkdtemp(name.data())) / "flx";
    }
    ~TuningCacheTest() override { fs::remove_all(folder_.parent_path()); }
    [[nodiscard]] TuningCache open(const std::string &identity = "this build", int64_t now = kNow) const {
        TuningCache cache(folder_, identity, now);
        cache.read();
        return cache;
    }
    /// A file with one class and a price. Its path.
    std::string written() {
        TuningCache cache = open();
        cache.learn(kShape, kBcast, {2e-3, 1e-3}, kNow);
        cache.learn_price(kShape, 0.07, kNow);
        EXPECT_TRUE(cache.write()) << cache.state();
        return cache.path();
    }
    void replace(const std::string &path, const std::string &text) { std::ofstream(path) << text; }
    static std::string text_of(const std::string &path) {
        std::stringstream text;
        text << std::ifstream(path).rdbuf();
        return text.str();
    }
    /// It is not used, and its state says why.
    void expect_passed_over(const std::string &why) {
        const TuningCache cache = open();
        EXPECT_EQ(cache.find(kShape), nullptr);
        EXPECT_NE(cache.state().find("is not used: "), std::string::npos) << cache.state();
        EXPECT_NE(cache.state().find(why), std::string::npos) << cache.state();
    }

    fs::path folder_;
};

TEST_F(TuningCacheTest, NothingIsKnownAtFirst) {
    const TuningCache cache = open();
    EXPECT_EQ(cache.find(kShape), nullptr);
    EXPECT_NE(cache.state().find("there is none yet"), std::string::npos) << cache.state();
    EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(TuningCacheTest, KeepsWhatWasLearned) {
    written();
    const TuningCache cache = open();
    const TuningCache::Entry *entry = cache.find(kShape);
    ASSERT_NE(entry, nullptr) << cache.state();
    EXPECT_DOUBLE_EQ(entry->experience[kBcast.index()].mpi, 2e-3);
    EXPECT_DOUBLE_EQ(entry->experience[kBcast.index()].flx, 1e-3);
    EXPECT_DOUBLE_EQ(entry->price_s, 0.07);
    EXPECT_FALSE(entry->experience[kAny.index()].known());
    EXPECT_EQ(cache.find(Shape{8, 1, 8}), nullptr);
}

TEST_F(TuningCacheTest, TwoProgramsAddToOneFile) {
    TuningCache one = open();
    TuningCache other = open();
    one.learn(kShape, kBcast, {2e-3, 1e-3}, kNow);
    other.learn(kShape, kAny, {3e-3, 4e-3}, kNow);
    other.learn(Shape{2, 1, 2}, kBcast, {1e-3, 5e-3}, kNow);
    ASSERT_TRUE(one.write() && other.write());
    const TuningCache cache = open();
    ASSERT_NE(cache.find(kShape), nullptr);
    EXPECT_TRUE(cache.find(kShape)->experience[kBcast.index()].known());
    EXPECT_TRUE(cache.find(kShape)->experience[kAny.index()].known());
    EXPECT_NE(cache.find(Shape{2, 1, 2}), nullptr);
}

TEST_F(TuningCacheTest, RunsThatWereTooShortAddUp) {
    for (int run = 0; run < 3; ++run) {
        TuningCache cache = open();
        cache.learn_unpaid(kShape, 0.01);
        ASSERT_TRUE(cache.write());
    }
    ASSERT_NE(open().find(kShape), nullptr);
    EXPECT_NEAR(open().find(kShape)->unpaid_s, 0.03, 1e-9);
    // Once FLX was made, what was guessed is over.
    TuningCache cache = open();
    cache.learn_price(kShape, 0.07, kNow);
    ASSERT_TRUE(cache.write());
    TuningCache later = open();
    EXPECT_EQ(later.find(kShape)->unpaid_s, 0);
    later.learn_unpaid(kShape, 0.01);
    ASSERT_TRUE(later.write());
    EXPECT_EQ(open().find(kShape)->unpaid_s, 0);
}

TEST_F(TuningCacheTest, TheNewestTimesCount) {
    written();
    TuningCache older = open();
    older.learn(kShape, kBcast, {9e-3, 9e-3}, kNow - 10);
    ASSERT_TRUE(older.write());
    EXPECT_DOUBLE_EQ(open().find(kShape)->experience[kBcast.index()].mpi, 2e-3);
}

TEST_F(TuningCacheTest, OldTimesArePassedOver) {
    constexpr int64_t kDay = 24 * 3600;
    written();
    for (const int64_t now : {kNow + 31 * kDay, kNow - 2 * kDay}) {
        const TuningCache cache = open("this build", now);
        ASSERT_NE(cache.find(kShape), nullptr);
        EXPECT_FALSE(cache.find(kShape)->experience[kBcast.index()].known());
        EXPECT_EQ(cache.find(kShape)->price_s, 0);
    }
    // What a clock wrote that was years ahead gives way to the first times that are right.
    const int64_t before = kNow - 300 * kDay;
    TuningCache right = open("this build", before);
    right.learn(kShape, kBcast, {4e-3, 3e-3}, before);
    right.learn_price(kShape, 0.09, before);
    ASSERT_TRUE(right.write());
    const TuningCache cache = open("this build", before);
    EXPECT_DOUBLE_EQ(cache.find(kShape)->experience[kBcast.index()].mpi, 4e-3);
    EXPECT_NEAR(cache.find(kShape)->price_s, 0.09, 1e-9);
}

TEST_F(TuningCacheTest, AnAccidentDoesNotMakeItDear) {
    written();
    int64_t now = kNow;
    // Of 0.07 s.
    for (const auto &[price, kept] : {std::pair{3.0, 0.14}, {0.08, 0.08}, {0.1, 0.1}, {9.0, 0.2}, {0.06, 0.06}}) {
        TuningCache cache = open();
        cache.learn_price(kShape, price, ++now);
        ASSERT_TRUE(cache.write());
        EXPECT_NEAR(open().find(kShape)->price_s, kept, 1e-9);
    }
}

TEST_F(TuningCacheTest, AnotherBuildHasAFileOfItsOwn) {
    written();
    const TuningCache other = open("another build");
    EXPECT_EQ(other.find(kShape), nullptr);
    // Should two identities have one name, what is inside tells them apart.
    fs::copy_file(open().path(), other.path());
    const TuningCache same_name = open("another build");
    EXPECT_EQ(same_name.find(kShape), nullptr);
    EXPECT_NE(same_name.state().find("another machine, build or set of knobs"), std::string::npos);
}

TEST_F(TuningCacheTest, EveryBeginningOfAFileIsHarmless) {
    const std::string path = written();
    const std::string text = text_of(path);
    for (size_t length = 0; length + 2 < text.size(); ++length) {
        replace(path, text.substr(0, length));
        const TuningCache cache = open();
        ASSERT_EQ(cache.find(kShape), nullptr) << length;
        ASSERT_NE(cache.state().find("it is damaged"), std::string::npos) << cache.state();
    }
}

TEST_F(TuningCacheTest, EveryChangedByteIsHarmless) {
    const std::string path = written();
    const std::string text = text_of(path);
    for (size_t at = 0; at < text.size(); ++at)
        for (const char with : {'\0', '9', '-', '{', '"', 'e', '\xff'}) {
            std::string changed = text;
            changed[at] = with;
            replace(path, changed);
            const TuningCache cache = open();  // does not end
            if (const auto *entry = cache.find(kShape); entry != nullptr) {
                for (const Times &times : entry->experience)
                    ASSERT_TRUE(times.mpi >= 0 && times.mpi < 1e6 && times.flx >= 0 && times.flx < 1e6) << changed;
            }
        }
}

TEST_F(TuningCacheTest, SaysWhatIsWrong) {
    const std::string path = written();
    replace(path, R"({"format": 2})");
    expect_passed_over("it has format 2, and this is 1");
    replace(path,
            R"({"format": 1, "identity": "this build", "shapes": {"x": {"classes": {"allredcue 4": {"when": 1}}}}})");
    expect_passed_over("it is damaged (allredcue 4)");
    replace(path, std::string(20 << 20, ' '));
    expect_passed_over("it has 20971520 bytes");
    fs::remove(path);
    fs::create_directory(path);
    expect_passed_over("");
}

TEST_F(TuningCacheTest, AFolderThatCannotBeWrittenIsNoError) {
    fs::create_directories(folder_.parent_path());
    replace(folder_, "a file where the folder would be");
    TuningCache cache = open();
    cache.learn(kShape, kBcast, {2e-3, 1e-3}, kNow);
    EXPECT_FALSE(cache.write());
    EXPECT_NE(cache.state().find("is not written: "), std::string::npos) << cache.state();
    fs::remove(folder_);
}

TEST_F(TuningCacheTest, NoFolderNoFile) {
    TuningCache cache("", "this build", kNow);
    cache.read();
    cache.learn(kShape, kBcast, {2e-3, 1e-3}, kNow);
    EXPECT_TRUE(cache.write());
    EXPECT_EQ(cache.state(), "none is kept");
}

TEST_F(TuningCacheTest, SixteenJobsAtOnce) {
    constexpr int kJobs = 16;
    written();
    for (int job = 0; job < kJobs; ++job)
        if (fork() == 0) {
            int bad = 0;
            for (int i = 0; i < 50; ++i) {
                TuningCache cache(folder_, "this build", kNow);
                cache.read();
                // Whatever others do, a file is whole, and what was there before them stays.
                const TuningCache::Entry *entry = cache.find(kShape);
                bad += entry == nullptr || !entry->experience[kBcast.index()].known() ? 1 : 0;
                cache.learn(Shape{job + 1, 1, job + 1}, kAny, {1e-3, 1e-3}, kNow + i);
                bad += cache.write() ? 0 : 1;
            }
            _exit(bad == 0 ? 0 : 1);
        }
    for (int job = 0; job < kJobs; ++job) {
        int status = 0;
        wait(&status);
        EXPECT_EQ(status, 0);
    }
    int files = 0;
    for ([[maybe_unused]] const auto &each : fs::directory_iterator(folder_))
        ++files;
    EXPECT_EQ(files, 1) << "temporary files are left";
}

TEST(TuningCacheFolder, ComesFromTheKnobOrTheHome) {
    EXPECT_EQ(cache_folder("none"), "");
    EXPECT_EQ(cache_folder("/some/where"), "/some/where");
    setenv("XDG_CACHE_HOME", "/cache", 1);
    EXPECT_EQ(cache_folder(""), "/cache/flx");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "/home/someone", 1);
    EXPECT_EQ(cache_folder(""), "/home/someone/.cache/flx");
    unsetenv("HOME");
    EXPECT_EQ(cache_folder(""), "");
}

TEST(TuningCacheIdentity, NamesBuildAndMpi) {
    const std::string identity = machine_and_builds("/proc/self/exe");
    EXPECT_NE(identity.find("FLX "), std::string::npos) << identity;
    EXPECT_NE(identity.find(" bytes at "), std::string::npos) << identity;
    EXPECT_NE(identity.find("MPI"), std::string::npos) << identity;
}

}  // namespace
}  // namespace flx::preload
