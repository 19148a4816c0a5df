#include "runtime/kept/kept_links.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace flx {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kNow = 1'790'000'000;
constexpr int64_t kDay = 24 * 3600;

class KeptLinksTest : public testing::Test {
  public:
    KeptLinksTest(const KeptLinksTest &) = delete;
    KeptLinksTest &operator=(const KeptLinksTest &) = delete;

  protected:
    KeptLinksTest() {
        std::string name = fs::temp_directory_path() / "flx-kept-XXXXXX";
        folder_ = fs::path(mkdtemp(name.data())) / "flx";
    }
    ~KeptLinksTest() override { fs::remove_all(folder_.parent_path()); }

    [[nodiscard]] KeptLinks open(int64_t now = kNow) const { return {folder_, now}; }
    /// What two ranks of two hosts with two rails found.
    static std::vector<LinksMeasured> measured() {
        std::vector<LinksMeasured> all(2);
        all[0][kMaxLinks + 1] = {.done = true,
                                 .answered = true,
                                 .latency_ns = 18204,
                                 .bytes_per_ns = 0.1,
                                 .together_bytes_per_ns = 0.09,
                                 .send_ns = 9000};
        all[0][kMaxLinks + 2] = {.done = true, .answered = true, .latency_ns = 16130, .bytes_per_ns = 1.0 / 3};
        // One that is too slow for a rate to be found.
        all[0][kMaxLinks + 3] = {.answered = true, .latency_ns = 3e6};
        all[1] = all[0];
        all[1][kMaxLinks + 1].latency_ns = 20000;
        return all;
    }
    [[nodiscard]] std::string path() const {
        std::string found;
        for (const auto &entry : fs::directory_iterator(folder_))
            found = entry.path();
        return found;
    }
    static std::string text_of(const std::string &path) {
        std::stringstream text;
        text << std::ifstream(path).rdbuf();
        return text.str();
    }
    static void replace(const std::string &path, const std::string &text) { std::ofstream(path) << text; }

    fs::path folder_;
};

void expect_same(const std::vector<LinksMeasured> &a, const std::vector<LinksMeasured> &b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t rank = 0; rank < a.size(); ++rank)
        for (size_t place = 0; place < a[rank].size(); ++place) {
            const LinkMeasured &one = a[rank][place];
            const LinkMeasured &other = b[rank][place];
            EXPECT_EQ(one.done, other.done);
            EXPECT_EQ(one.answered, other.answered);
            EXPECT_EQ(one.latency_ns, other.latency_ns);
            EXPECT_EQ(one.bytes_per_ns, other.bytes_per_ns);
            EXPECT_EQ(one.together_bytes_per_ns, other.together_bytes_per_ns);
            EXPECT_EQ(one.send_ns, other.send_ns);
        }
}

TEST_F(KeptLinksTest, WhatWasMeasuredIsFoundAgain) {
    std::vector<LinksMeasured> found;
    KeptLinks first = open();
    EXPECT_FALSE(first.find("2 ranks", 2, found));
    EXPECT_NE(first.state().find("is not there yet"), std::string::npos) << first.state();
    first.keep("2 ranks", measured());
    EXPECT_NE(first.state().find("measured now, and kept in "), std::string::npos) << first.state();

    KeptLinks later = open(kNow + 7300);
    ASSERT_TRUE(later.find("2 ranks", 2, found)) << later.state();
    expect_same(found, measured());
    EXPECT_NE(later.state().find("measured 2 hours ago, by "), std::string::npos) << later.state();
    EXPECT_FALSE(later.find("3 ranks", 3, found));
    EXPECT_NE(later.state().find("knows no such communicator yet"), std::string::npos) << later.state();
    EXPECT_FALSE(later.find("2 ranks", 3, found));
    EXPECT_NE(later.state().find("it is damaged (it is not of 3 ranks)"), std::string::npos) << later.state();
}

TEST_F(KeptLinksTest, OldOnesAndThoseOfTimesToComeArePassedOver) {
    open().keep("2 ranks", measured());
    std::vector<LinksMeasured> found;
    for (const int64_t now : {kNow + kDay + 1, kNow - 2 * kDay}) {
        KeptLinks cache = open(now);
        EXPECT_FALSE(cache.find("2 ranks", 2, found)) << now;
    }
}

TEST_F(KeptLinksTest, ThereAreNeverTooMany) {
    std::vector<LinksMeasured> found;
    // Whatever a clock wrote that was wrong, and what is too old, does not stay.
    for (int i = 0; i < 70; ++i)
        open(kNow + 300 * kDay).keep("of times to come " + std::to_string(i), measured());
    for (int i = 0; i < 80; ++i) {
        const std::string name = "communicator " + std::to_string(i);
        open(kNow + i).keep(name, measured());
        EXPECT_TRUE(open(kNow + i).find(name, 2, found)) << i;
    }
    int kept = 0;
    for (int i = 0; i < 80; ++i)
        kept += open(kNow + 80).find("communicator " + std::to_string(i), 2, found) ? 1 : 0;
    EXPECT_EQ(kept, 64);
    open(kNow + 3 * kDay).keep("the only one", measured());
    EXPECT_EQ(nlohmann::json::parse(text_of(path()))["communicators"].size(), 1U);
}

TEST_F(KeptLinksTest, EveryBeginningAndEveryChangedByteIsHarmless) {
    open().keep("2 ranks", measured());
    const std::string file = path();
    const std::string text = text_of(file);
    std::vector<LinksMeasured> found;
    for (size_t length = 0; length + 2 < text.size(); ++length) {
        replace(file, text.substr(0, length));
        KeptLinks cache = open();
        ASSERT_FALSE(cache.find("2 ranks", 2, found)) << length;
        ASSERT_NE(cache.state().find("is not used: it is damaged"), std::string::npos) << cache.state();
    }
    for (size_t at = 0; at < text.size(); ++at)
        for (const char with : {'\0', '9', '-', '{', '"', 'e', '\xff'}) {
            std::string changed = text;
            changed[at] = with;
            replace(file, changed);
            KeptLinks cache = open();
            if (!cache.find("2 ranks", 2, found))
                continue;
            for (const LinksMeasured &rank : found)
                for (const LinkMeasured &link : rank)
                    ASSERT_TRUE(!link.done || (link.latency_ns > 0 && link.bytes_per_ns > 0)) << changed;
        }
    // Whoever measures again writes over it.
    open().keep("2 ranks", measured());
    ASSERT_TRUE(open().find("2 ranks", 2, found));
    expect_same(found, measured());
}

TEST_F(KeptLinksTest, AnotherBuildOrFormatIsNotRead) {
    open().keep("2 ranks", measured());
    const std::string file = path();
    std::vector<LinksMeasured> found;
    nlohmann::json content = nlohmann::json::parse(text_of(file));
    nlohmann::json other = content;
    other["identity"] = "another build";
    replace(file, other.dump());
    KeptLinks cache = open();
    EXPECT_FALSE(cache.find("2 ranks", 2, found));
    EXPECT_NE(cache.state().find("another machine, build or set of knobs"), std::string::npos) << cache.state();
    other = content;
    other["format"] = 2;
    replace(file, other.dump());
    EXPECT_FALSE(cache.find("2 ranks", 2, found));
    EXPECT_NE(cache.state().find("it has format 2, and this is 1"), std::string::npos) << cache.state();
}

TEST_F(KeptLinksTest, WhereNothingCanBeWritten) {
    fs::create_directories(folder_.parent_path());
    replace(folder_, "a file where the folder would be");
    KeptLinks cache = open();
    cache.keep("2 ranks", measured());
    EXPECT_NE(cache.state().find("is not written: "), std::string::npos) << cache.state();
    fs::remove(folder_);

    KeptLinks none("", kNow);
    std::vector<LinksMeasured> found;
    none.keep("2 ranks", measured());
    EXPECT_FALSE(none.find("2 ranks", 2, found));
    EXPECT_EQ(none.state(), "nothing is kept");
}

TEST_F(KeptLinksTest, FilesThatNobodyWritesAnyMoreGo) {
    open().keep("2 ranks", measured());
    const std::string mine = path();
    const auto old = fs::file_time_type::clock::now() - std::chrono::hours(24 * 40);
    for (const char *name : {"links-0000.json", "links-1111.json", "notes.txt", "mpi-2222.json"})
        replace(folder_ / name, "{}");
    for (const char *name : {"links-0000.json", "notes.txt", "mpi-2222.json"})
        fs::last_write_time(folder_ / name, old);
    open().keep("3 ranks", measured());
    EXPECT_FALSE(fs::exists(folder_ / "links-0000.json"));
    for (const fs::path &stays : {fs::path(mine), folder_ / "links-1111.json", folder_ / "notes.txt"})
        EXPECT_TRUE(fs::exists(stays)) << stays;
    EXPECT_TRUE(fs::exists(folder_ / "mpi-2222.json"));
}

TEST(WhatChanged, NamesTheLinkAndTheRank) {
    std::vector<LinksMeasured> then(2);
    then[0][1].answered = then[1][1].answered = then[1][kMaxLinks + 2].answered = true;
    const std::vector<std::string> names = {"shm", "rail1", "rail2"};
    EXPECT_EQ(what_changed(then, then, names), "");
    std::vector<LinksMeasured> now = then;
    now[1][kMaxLinks + 2].answered = false;
    EXPECT_EQ(what_changed(then, now, names), "rail2 does not answer rank 1 now");
    now = then;
    now[0][2].answered = true;
    EXPECT_EQ(what_changed(then, now, names), "rail2 answers rank 0 now");
}

}  // namespace
}  // namespace flx
