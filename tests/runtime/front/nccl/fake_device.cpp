#include "tests/runtime/front/nccl/fake_device.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace fake {
namespace {

constexpr std::chrono::seconds kPatience(60);

struct Stream {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> queue;
    bool busy = false;
    bool ending = false;
    std::thread thread;

    Stream() {
        thread = std::thread([this] {
            std::unique_lock lock(mutex);
            while (true) {
                changed.wait(lock, [this] { return ending || !queue.empty(); });
                if (queue.empty())
                    return;
                const auto body = std::move(queue.front());
                queue.pop_front();
                busy = true;
                lock.unlock();
                body();
                lock.lock();
                busy = false;
                changed.notify_all();
            }
        });
    }
};
Stream &of(cudaStream_t stream) {
    return *reinterpret_cast<Stream *>(stream);
}

struct Meeting {
    std::vector<void *> brought;
    int come = 0;
    bool done = false;
    int gone = 0;
};
struct World {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::string, std::shared_ptr<Meeting>> meetings;
    std::map<std::string, std::vector<char>> letters;
    std::mutex note_mutex;
    std::vector<std::string> notes;
};
World &world() {
    static auto *const all = new World;
    return *all;
}

size_t element(ncclDataType_t type) {
    constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return kSizes[type];
}

/// Element `i` of the reduction; others than numbers of four bytes are measured alone, and their bytes added.
void reduce(const std::vector<Collective *> &all, size_t i, void *to, size_t at) {
    if (all[0]->type == ncclFloat32) {
        float sum = 0;
        for (const Collective *one : all)
            sum += static_cast<const float *>(one->in)[i];
        static_cast<float *>(to)[at] = all[0]->op == ncclAvg ? sum / static_cast<float>(all.size()) : sum;
        return;
    }
    const size_t bytes = element(all[0]->type);
    if (bytes != sizeof(uint32_t)) {
        for (size_t byte = 0; byte < bytes; ++byte) {
            uint8_t sum = 0;
            for (const Collective *one : all)
                sum += static_cast<const uint8_t *>(one->in)[i * bytes + byte];
            static_cast<uint8_t *>(to)[at * bytes + byte] = sum;
        }
        return;
    }
    uint32_t sum = 0;
    for (const Collective *one : all)
        sum += static_cast<const uint32_t *>(one->in)[i];
    static_cast<uint32_t *>(to)[at] = sum;
}

}  // namespace

struct Event {
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t recorded = 0;
    uint64_t reached = 0;
};

cudaStream_t make_stream() {
    return reinterpret_cast<cudaStream_t>(new Stream);
}

void free_stream(cudaStream_t stream) {
    {
        const std::lock_guard guard(of(stream).mutex);
        of(stream).ending = true;
    }
    of(stream).changed.notify_all();
    of(stream).thread.join();
    delete &of(stream);
}

void enqueue(cudaStream_t stream, std::function<void()> body) {
    const std::lock_guard guard(of(stream).mutex);
    of(stream).queue.push_back(std::move(body));
    of(stream).changed.notify_all();
}

void await_room(cudaStream_t stream, size_t most) {
    std::unique_lock lock(of(stream).mutex);
    of(stream).changed.wait_for(lock, kPatience, [&] { return of(stream).queue.size() < most; });
}

bool synchronize(cudaStream_t stream) {
    std::unique_lock lock(of(stream).mutex);
    return of(stream).changed.wait_for(lock, kPatience, [&] { return of(stream).queue.empty() && !of(stream).busy; });
}

Event *make_event() {
    return new Event;
}

void record(Event *event, cudaStream_t stream) {
    uint64_t number = 0;
    {
        const std::lock_guard guard(event->mutex);
        number = ++event->recorded;
    }
    enqueue(stream, [event, number] {
        const std::lock_guard guard(event->mutex);
        event->reached = std::max(event->reached, number);
        event->changed.notify_all();
    });
}

void wait(Event *event, cudaStream_t stream) {
    uint64_t number = 0;
    {
        const std::lock_guard guard(event->mutex);
        number = event->recorded;
    }
    enqueue(stream, [event, number] {
        std::unique_lock lock(event->mutex);
        event->changed.wait_for(lock, kPatience, [&] { return event->reached >= number; });
    });
}

bool ended(Event *event) {
    const std::lock_guard guard(event->mutex);
    return event->reached >= event->recorded;
}

bool meet(const std::string &key, int rank, int ranks, void *mine,
          const std::function<void(const std::vector<void *> &)> &body, const std::atomic<bool> *stop) {
    World &all = world();
    std::unique_lock lock(all.mutex);
    std::shared_ptr<Meeting> &meeting = all.meetings[key];
    if (meeting == nullptr) {
        meeting = std::make_shared<Meeting>();
        meeting->brought.resize(ranks);
    }
    const std::shared_ptr<Meeting> here = meeting;
    here->brought[rank] = mine;
    if (++here->come == ranks) {
        body(here->brought);
        here->done = true;
        all.changed.notify_all();
    }
    constexpr std::chrono::milliseconds kLook(1);
    const auto until = std::chrono::steady_clock::now() + kPatience;
    const auto stopped = [&] { return stop != nullptr && stop->load(); };
    while (!here->done && !stopped() && std::chrono::steady_clock::now() < until)
        all.changed.wait_for(lock, kLook);
    const bool done = here->done;
    if (!done && !stopped())
        note("nobody came: " + key);
    if (++here->gone == ranks)
        all.meetings.erase(key);
    return done;
}

void put_letter(const std::string &name, std::span<const char> bytes) {
    World &all = world();
    const std::lock_guard guard(all.mutex);
    all.letters[name].assign(bytes.begin(), bytes.end());
    all.changed.notify_all();
}

void take_letter(const std::string &name, std::span<char> bytes) {
    World &all = world();
    std::unique_lock lock(all.mutex);
    if (!all.changed.wait_for(lock, kPatience, [&] { return all.letters.contains(name); })) {
        note("nobody sent " + name);
        return;
    }
    const std::vector<char> letter = std::move(all.letters.extract(name).mapped());
    if (letter.size() != bytes.size())
        note("mismatch: a message's length");
    std::copy_n(letter.begin(), std::min(letter.size(), bytes.size()), bytes.begin());
}

std::atomic<int> &lanes() {
    static std::atomic<int> number{0};
    return number;
}

void note(const std::string &line) {
    const std::lock_guard guard(world().note_mutex);
    world().notes.push_back(line);
}

std::vector<std::string> take_notes() {
    const std::lock_guard guard(world().note_mutex);
    return std::exchange(world().notes, {});
}

void carry_out(const std::vector<void *> &collectives) {
    std::vector<Collective *> all;
    for (void *one : collectives)
        all.push_back(static_cast<Collective *>(one));
    const Collective &first = *all[0];
    for (const Collective *one : all)
        if (!(*one == first)) {
            note("mismatch: " + first.kind + " and " + one->kind);
            return;
        }
    const size_t ranks = all.size();
    const size_t bytes = first.count * element(first.type);
    const size_t block = bytes / ranks;
    std::vector<std::vector<char>> results(ranks, std::vector<char>(bytes));
    for (size_t rank = 0; rank < ranks; ++rank) {
        char *to = results[rank].data();
        if (first.kind == "AllReduce" || first.kind == "Reduce") {
            if (rank != 0) {
                results[rank] = results[0];
                continue;
            }
            for (size_t i = 0; i < first.count; ++i)
                reduce(all, i, to, i);
        } else if (first.kind == "ReduceScatter") {
            for (size_t i = 0; i < first.count / ranks; ++i)
                reduce(all, rank * (first.count / ranks) + i, to, i);
        } else if (first.kind == "Broadcast") {
            std::memcpy(to, all[first.root]->in, bytes);
        } else {
            for (size_t from = 0; from < ranks; ++from)
                std::memcpy(to + from * block,
                            static_cast<const char *>(all[from]->in) + (first.kind == "AlltoAll" ? rank * block : 0),
                            block);
        }
    }
    for (size_t rank = 0; rank < ranks; ++rank)
        if (first.kind != "Reduce" || static_cast<int>(rank) == first.root)
            std::memcpy(all[rank]->out, results[rank].data(), first.kind == "ReduceScatter" ? block : bytes);
}

}  // namespace fake
