#include "runtime/schedules/loaded.h"

#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>

#include "runtime/schedules/schedule_file.h"

namespace flx::schedules {
namespace {

/// By key; a deque, as others point to what is in it.
struct Store {
    std::mutex mutex;
    std::deque<Loaded> all;

    Loaded *find(std::string_view key) {
        const auto found = std::ranges::find(all, key, &Loaded::key);
        return found == all.end() ? nullptr : &*found;
    }
    /// The last one of several.
    Loaded *find_named(std::string_view name) {
        const auto found =
            std::find_if(all.rbegin(), all.rend(), [&](const Loaded &one) { return one.written.name == name; });
        return found == all.rend() ? nullptr : &*found;
    }
};

Store &store() {
    static Store one;
    return one;
}

Status read_text(const std::string &path, std::string &text) {
    std::error_code ignored;
    std::ifstream file(path, std::ios::binary);
    if (!file.is_open() || std::filesystem::is_directory(path, ignored))
        return fail(Fault::schedule_file, "{}: this file with a schedule cannot be read", path);
    text.assign(std::istreambuf_iterator<char>(file), {});
    return {};
}

}  // namespace

Status load(const std::string &path, bool prove, const Loaded *&result) {
    std::string text;
    Status unread = read_text(path, text);
    algorithms::Written written;
    if (unread.ok())
        if (const Status status = read_schedule(text, std::filesystem::path(path).stem().string(), written);
            !status.ok())
            return status.behind(path + ": ");
    const std::lock_guard lock(store().mutex);
    const std::string key = fmt::format("{}#{:016x}", written.name, written.identity);
    Loaded *loaded = unread.ok() ? store().find(key) : store().find_named(path);
    if (loaded == nullptr && !unread.ok())
        return unread;
    const bool to_prove = prove && (loaded == nullptr || !loaded->proved);
    if (to_prove)
        if (const std::string wrong = algorithms::prove(loaded == nullptr ? written : loaded->written); !wrong.empty())
            return fail(Fault::schedule_file, "{}: {}", path, wrong);
    if (loaded == nullptr) {
        loaded = &store().all.emplace_back();
        loaded->key = key;
        loaded->called = "file:" + written.name;
        loaded->written = std::move(written);
        loaded->algorithm = algorithms::algorithm_of(loaded->written);
        loaded->algorithm.name = loaded->called;
    }
    loaded->proved = loaded->proved || to_prove;
    result = loaded;
    return {};
}

const Loaded *find_loaded(std::string_view key) {
    const std::lock_guard lock(store().mutex);
    return store().find(key);
}

}  // namespace flx::schedules
