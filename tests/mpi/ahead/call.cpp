#include "tests/mpi/ahead/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "tests/mpi/random.h"

namespace flx::test::ahead {
namespace {

uint64_t key_of(const Operation &operation, int from, int to) {
    return Random::mix(operation.number * 0x9e3779b97f4a7c15U + static_cast<uint64_t>(from) * 0x10001U +
                       static_cast<uint64_t>(to) * 0x3000005U);
}

uint64_t word_at(uint64_t key, size_t index) {
    return Random::mix(key + index * 0x9e3779b97f4a7c15U);
}

/// Calls `body` with a null pointer to the C type.
template <typename Body>
void with_type(Type type, Body &&body) {
    switch (type) {
        case Type::u8:
            return body(static_cast<uint8_t *>(nullptr));
        case Type::i16:
            return body(static_cast<int16_t *>(nullptr));
        case Type::i32:
            return body(static_cast<int32_t *>(nullptr));
        case Type::u64:
            return body(static_cast<uint64_t *>(nullptr));
        case Type::f32:
            return body(static_cast<float *>(nullptr));
        case Type::f64:
            return body(static_cast<double *>(nullptr));
    }
}

/// Floats are whole numbers, so that no order of adding rounds. What is averaged is a multiple of the ranks.
template <typename T>
T element_of(uint64_t word, Reduction reduction, int size) {
    if (reduction == Reduction::avg)
        return static_cast<T>(word % 65536 * static_cast<uint64_t>(size));
    if constexpr (std::is_floating_point_v<T>)
        return static_cast<T>(word % 1'000'000);
    else
        return static_cast<T>(word);
}

template <typename T>
T combined(T x, T y, Reduction reduction) {
    switch (reduction) {
        case Reduction::min:
            return std::min(x, y);
        case Reduction::max:
            return std::max(x, y);
        case Reduction::bxor:
            if constexpr (std::is_integral_v<T>)
                return static_cast<T>(x ^ y);
            return x;
        case Reduction::compose:
            if constexpr (std::is_same_v<T, uint64_t>)
                compose(&x, &y, 1);
            return y;
        default:
            if constexpr (std::is_integral_v<T>)
                return static_cast<T>(static_cast<uint64_t>(x) + static_cast<uint64_t>(y));
            else
                return x + y;
    }
}

std::string some(const std::byte *bytes, size_t count) {
    std::string text;
    for (size_t i = 0; i < std::min<size_t>(count, 8); ++i)
        text += fmt::format("{}{:02x}", i == 0 ? "" : " ", static_cast<unsigned>(bytes[i]));
    return text;
}

}  // namespace

void compose(const void *in, void *inout, size_t count) {
    const auto *first = static_cast<const std::byte *>(in);
    auto *second = static_cast<std::byte *>(inout);
    for (size_t i = 0; i < count; ++i, first += 8, second += 8) {
        std::array<uint32_t, 2> x{};
        std::array<uint32_t, 2> y{};
        std::memcpy(x.data(), first, 8);
        std::memcpy(y.data(), second, 8);
        y = {x[0] * y[0], x[1] * y[0] + y[1]};
        std::memcpy(second, y.data(), 8);
    }
}

void give(const Operation &operation, int size, int from, int to, size_t first, std::span<std::byte> bytes) {
    const uint64_t key = key_of(operation, from, to);
    std::byte *at = bytes.data();
    if (reduces(operation.collective)) {
        with_type(operation.type, [&](auto *type) {
            using T = std::remove_pointer_t<decltype(type)>;
            for (size_t i = 0; i < bytes.size() / sizeof(T); ++i, at += sizeof(T)) {
                const T value = element_of<T>(word_at(key, first + i), operation.reduction, size);
                std::memcpy(at, &value, sizeof value);
            }
        });
        return;
    }
    for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t), at += sizeof(uint64_t)) {
        const uint64_t word = word_at(key, i);
        std::memcpy(at, &word, std::min(sizeof word, bytes.size() - i));
    }
}

void give_reduced(const Operation &operation, int size, int last, size_t first, std::span<std::byte> bytes) {
    thread_local std::vector<uint64_t> keys;
    keys.clear();
    for (int rank = 0; rank <= last; ++rank)
        keys.push_back(key_of(operation, rank, 0));
    with_type(operation.type, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        for (size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
            T value = element_of<T>(word_at(keys[0], first + i), operation.reduction, size);
            for (size_t rank = 1; rank < keys.size(); ++rank)
                value = combined(value, element_of<T>(word_at(keys[rank], first + i), operation.reduction, size),
                                 operation.reduction);
            if (operation.reduction == Reduction::avg)
                value = static_cast<T>(value / static_cast<T>(last + 1));
            std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof value);
        }
    });
}

std::byte *Arena::take(size_t bytes) {
    constexpr size_t kBlock = size_t{4} << 20;
    constexpr size_t kAlignment = 64;
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    while (block_ < blocks_.size() && blocks_[block_].bytes - at_ < bytes) {
        ++block_;
        at_ = 0;
    }
    if (block_ == blocks_.size()) {
        const size_t least = std::max(bytes, kBlock);
        blocks_.push_back({static_cast<std::byte *>(allocate_(least)), least});
    }
    std::byte *memory = blocks_[block_].data + at_;
    at_ += bytes;
    return memory;
}

Call::Call(const Operation &operation, int rank, int size, Arena &in_memory, Arena &out_memory)
    : operation_(operation),
      rank_(rank),
      size_(size),
      element_(size_of(operation.type)),
      in_memory_(in_memory),
      out_memory_(out_memory),
      reduced_(reduces(operation.collective)) {
    lay_out();
}

void Call::make(Side &side, size_t elements, Arena &arena) const {
    const size_t shift = operation_.number % 5 * element_;  // not aligned to more than an element
    side.bytes = elements * element_;
    side.memory = arena.take(side.bytes + 2 * kGuard + shift);
    side.data = side.memory + kGuard + shift;
}

/// Blocks with gaps between, in an order of their own.
std::vector<size_t> Call::places(const std::vector<size_t> &counts, size_t &elements) const {
    const size_t gap = operation_.number % 3;
    std::vector<size_t> places(counts.size());
    size_t at = gap;
    for (size_t i = 0; i < counts.size(); ++i) {
        const size_t block = operation_.number % 2 == 0 ? i : counts.size() - 1 - i;
        places[block] = at;
        at += counts[block] + gap;
    }
    elements = at;
    return places;
}

void Call::gives(size_t at, size_t count, int to) {
    if (count != 0)
        given_.push_back({at * element_, count * element_, rank_, to, 0});
}

void Call::expects(size_t at, size_t count, int from, int to, size_t first) {
    if (count != 0)
        expected_.push_back({at * element_, count * element_, from, to, first});
}

void Call::lay_out() {
    const std::vector<size_t> &counts = operation_.counts;
    const size_t count = counts[0];
    const auto ranks = static_cast<size_t>(size_);
    const auto own = static_cast<size_t>(rank_);
    const auto each = [&](auto &&body) {
        for (int rank = 0; rank < size_; ++rank)
            body(rank, static_cast<size_t>(rank));
    };
    const bool root = rank_ == operation_.root;
    in_place_ = operation_.in_place;
    size_t elements = 0;
    switch (operation_.collective) {
        case Collective::barrier:
            in_place_ = false;
            break;
        case Collective::bcast:
            in_place_ = true;
            make(out_, count, out_memory_);
            if (root)
                gives(0, count, 0);
            expects(0, count, operation_.root, 0);
            break;
        case Collective::reduce:
        case Collective::allreduce:
        case Collective::scan:
        case Collective::exscan: {
            const bool result = operation_.collective != Collective::reduce || root;
            in_place_ = in_place_ && result;
            if (!in_place_)
                make(in_, count, in_memory_);
            if (result)
                make(out_, count, out_memory_);
            gives(0, count, 0);
            const int last = operation_.collective == Collective::scan     ? rank_
                             : operation_.collective == Collective::exscan ? rank_ - 1
                                                                           : size_ - 1;
            if (result && last >= 0)
                expects(0, count, last, 0);
            break;
        }
        case Collective::reduce_scatter_block:
        case Collective::reduce_scatter: {
            counts_ = operation_.collective == Collective::reduce_scatter ? counts : std::vector<size_t>(ranks, count);
            own_count_ = counts_[own];
            const size_t all = std::accumulate(counts_.begin(), counts_.end(), size_t{0});
            const size_t before = std::accumulate(counts_.begin(), counts_.begin() + rank_, size_t{0});
            if (!in_place_)
                make(in_, all, in_memory_);
            make(out_, in_place_ ? all : own_count_, out_memory_);
            gives(0, all, 0);
            expects(0, own_count_, size_ - 1, 0, before);
            rest_is_scratch_ = in_place_;
            break;
        }
        case Collective::gather:
        case Collective::gatherv:
        case Collective::allgather:
        case Collective::allgatherv: {
            const bool ragged =
                operation_.collective == Collective::gatherv || operation_.collective == Collective::allgatherv;
            const bool result = operation_.collective >= Collective::allgather || root;
            in_place_ = in_place_ && result;
            counts_ = ragged ? counts : std::vector<size_t>(ranks, count);
            own_count_ = counts_[own];
            if (ragged) {
                displacements_ = places(counts_, elements);
            } else {
                displacements_.resize(ranks);
                each([&](int, size_t at) { displacements_[at] = at * count; });
                elements = ranks * count;
            }
            if (!in_place_)
                make(in_, own_count_, in_memory_);
            if (result)
                make(out_, elements, out_memory_);
            gives(in_place_ ? displacements_[own] : 0, own_count_, 0);
            if (result)
                each([&](int from, size_t at) { expects(displacements_[at], counts_[at], from, 0); });
            break;
        }
        case Collective::scatter:
        case Collective::scatterv: {
            const bool ragged = operation_.collective == Collective::scatterv;
            in_place_ = in_place_ && root;
            counts_ = ragged ? counts : std::vector<size_t>(ranks, count);
            own_count_ = counts_[own];
            if (ragged) {
                displacements_ = places(counts_, elements);
            } else {
                displacements_.resize(ranks);
                each([&](int, size_t at) { displacements_[at] = at * count; });
                elements = ranks * count;
            }
            if (root)
                make(in_, elements, in_memory_);
            if (!in_place_)
                make(out_, own_count_, out_memory_);
            if (root)
                each([&](int to, size_t at) { gives(displacements_[at], counts_[at], to); });
            if (!in_place_)
                expects(0, own_count_, operation_.root, rank_);
            break;
        }
        case Collective::alltoall:
        case Collective::alltoallv: {
            const bool ragged = operation_.collective == Collective::alltoallv;
            each([&](int, size_t peer) {
                counts_.push_back(ragged ? counts[own * ranks + peer] : count);
                counts_back_.push_back(ragged ? counts[peer * ranks + own] : count);
            });
            size_t elements_back = 0;
            if (ragged) {
                displacements_back_ = places(counts_back_, elements_back);
                displacements_ = places(counts_, elements);
            } else {
                displacements_.resize(ranks);
                each([&](int, size_t at) { displacements_[at] = at * count; });
                displacements_back_ = displacements_;
                elements = elements_back = ranks * count;
            }
            if (!in_place_)
                make(in_, elements, in_memory_);
            make(out_, elements_back, out_memory_);
            each([&](int to, size_t at) { gives(displacements_[at], counts_[at], to); });
            each([&](int from, size_t at) { expects(displacements_back_[at], counts_back_[at], from, rank_); });
            break;
        }
        case Collective::message:
        case Collective::shift: {
            in_place_ = false;
            const bool message = operation_.collective == Collective::message;
            const int to = message ? operation_.peer : (rank_ + operation_.peer) % size_;
            const int from = message ? operation_.root : (rank_ + size_ - operation_.peer) % size_;
            sends_ = !message || root;
            receives_ = !message || rank_ == operation_.peer;
            if (sends_) {
                make(in_, count, in_memory_);
                gives(0, count, to);
            }
            if (receives_) {
                make(out_, count, out_memory_);
                expects(0, count, from, rank_);
            }
            break;
        }
    }
}

std::byte Call::filler() const {
    return static_cast<std::byte>(Random::mix(operation_.number) | 1U);
}

/// As it is before the operation.
void Call::image(const Side &side, std::vector<std::byte> &to) const {
    const auto before = static_cast<size_t>(side.data - side.memory);
    to.assign(before + side.bytes + kGuard, filler());
    const bool input = &side == &in_;
    if (input != (in_.memory != nullptr))
        return;
    for (const Part &part : given_)
        give(operation_, size_, part.from, part.to, part.first, std::span(to).subspan(before + part.at, part.bytes));
}

void Call::fill() {
    thread_local std::vector<std::byte> bytes;
    for (const Side *side : {&in_, &out_}) {
        if (side->memory == nullptr)
            continue;
        image(*side, bytes);
        std::memcpy(side->memory, bytes.data(), bytes.size());
    }
}

std::string Call::compare(const Side &side, const std::vector<std::byte> &should, const char *name,
                          std::vector<std::byte> &seen) const {
    if (std::memcmp(side.memory, should.data(), should.size()) == 0)
        return {};
    size_t first = SIZE_MAX;
    size_t last = 0;
    size_t wrong = 0;
    for (size_t i = 0; i < should.size(); ++i) {
        if (side.memory[i] == should[i])
            continue;
        first = std::min(first, i);
        last = i;
        ++wrong;
    }
    seen.assign(side.memory + first, side.memory + std::min(last + 1, first + 64));
    const auto data = static_cast<ptrdiff_t>(side.data - side.memory);
    return fmt::format("{} bytes of the {} are wrong, between byte {} and {} of {}: {} and should be {}", wrong, name,
                       static_cast<ptrdiff_t>(first) - data, static_cast<ptrdiff_t>(last) - data, side.bytes,
                       some(side.memory + first, should.size() - first),
                       some(should.data() + first, should.size() - first));
}

std::string Call::verdict(std::vector<std::byte> &seen) const {
    thread_local std::vector<std::byte> should;
    if (in_.memory != nullptr) {
        image(in_, should);
        std::string wrong = compare(in_, should, "input", seen);
        if (!wrong.empty())
            return wrong;
    }
    if (out_.memory == nullptr)
        return {};
    image(out_, should);
    const auto before = static_cast<size_t>(out_.data - out_.memory);
    if (rest_is_scratch_ && out_.bytes != 0)
        std::memcpy(should.data() + before, out_.data, out_.bytes);
    for (const Part &part : expected_) {
        const std::span<std::byte> to = std::span(should).subspan(before + part.at, part.bytes);
        if (reduced_)
            give_reduced(operation_, size_, part.from, part.first, to);
        else
            give(operation_, size_, part.from, part.to, part.first, to);
    }
    return compare(out_, should, "result", seen);
}

void Call::scribble() const {
    for (const Side *side : {&in_, &out_})
        if (side->bytes != 0)
            std::memset(side->data, 0xdb, side->bytes);
}

}  // namespace flx::test::ahead
