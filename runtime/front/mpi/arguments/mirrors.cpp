#include "runtime/front/mpi/arguments/mirrors.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <new>
#include <tuple>
#include <utility>

namespace flx::preload {

namespace {

/// Of this process alone. Errors come back here, and the program's handlers hear of them later.
MPI_Comm quiet = MPI_COMM_NULL;

}  // namespace

const Whereabouts *Whereabouts::of(const Description &describe, std::unique_ptr<const Whereabouts> &made) {
    static const Whereabouts *const on_host = [] {
        auto *where = new Whereabouts;  // stays: MPI may be finalized by a destructor
        where->memory_ = Memory::host;
        return where;
    }();
    if (!Gpus::instance().in_use())
        return on_host;
    auto where = std::make_unique<Whereabouts>();
    describe(*where);
    made = std::move(where);
    return made.get();
}

void Whereabouts::add(Side side, const void *begin, int64_t count, MPI_Datatype type) {
    Piece piece;
    if (begin == MPI_IN_PLACE || count <= 0 || !layout_of(type, piece.layout) || piece.layout.size == 0)
        return;
    piece.begin = static_cast<std::byte *>(const_cast<void *>(begin));
    piece.count = static_cast<size_t>(count);
    MPI_Aint lower = 0;
    auto span = static_cast<MPI_Aint>(piece.layout.size);
    if (!piece.layout.dense)
        PMPI_Type_get_true_extent(type, &lower, &span);
    const MPI_Aint last = (count - 1) * piece.layout.extent;
    piece.low = piece.begin + lower + std::min<MPI_Aint>(last, 0);
    piece.high = piece.begin + lower + std::max<MPI_Aint>(last, 0) + span;
    piece.on_gpu = Gpus::instance().hold(piece.low);
    const Memory memory = piece.on_gpu ? Memory::gpu : Memory::host;
    memory_ = memory_ == Memory::none || memory_ == memory ? memory : Memory::both;
    pieces_[side].push_back(piece);
}

void Whereabouts::add(Side side, const void *buffer, Numbers counts, Numbers displs, const MPI_Datatype *types,
                      bool one_type, int size) {
    if (counts == nullptr || displs == nullptr || types == nullptr || buffer == MPI_IN_PLACE)
        return;
    const auto *base = static_cast<const std::byte *>(buffer);
    for (int rank = 0; rank < size; ++rank) {
        Layout layout;
        if (!one_type)
            add(side, base + displs[rank], counts[rank], types[rank]);
        else if (layout_of(types[0], layout))
            add(side, base + displs[rank] * layout.extent, counts[rank], types[0]);
    }
}

void Whereabouts::sends(const void *buffer, int64_t count, MPI_Datatype type, int times) {
    add(kSent, buffer, count * times, type);
}

void Whereabouts::receives(const void *buffer, int64_t count, MPI_Datatype type, int times, bool whole) {
    add(kReceived, buffer, count * times, type);
    whole_ = whole;
}

void Whereabouts::sends(const void *buffer, Numbers counts, Numbers displs, const MPI_Datatype *types, bool one_type,
                        int size) {
    add(kSent, buffer, counts, displs, types, one_type, size);
}

void Whereabouts::receives(const void *buffer, Numbers counts, Numbers displs, const MPI_Datatype *types, bool one_type,
                           int size) {
    add(kReceived, buffer, counts, displs, types, one_type, size);
}

std::pair<std::byte *, std::byte *> Whereabouts::span(Side side) const {
    std::byte *low = nullptr;
    std::byte *high = nullptr;
    for (const Piece &piece : pieces_[side]) {
        low = low == nullptr ? piece.low : std::min(low, piece.low);
        high = std::max(high, piece.high);
    }
    return {low, high};
}

bool Whereabouts::is_plain() const {
    const auto plain = [](const Piece &piece) { return piece.on_gpu && piece.layout.dense; };
    for (const auto &pieces : pieces_)
        if (!std::all_of(pieces.begin(), pieces.end(), plain))
            return false;
    // What else lies among each other is copied by the processor.
    const auto [sent_low, sent_high] = span(kSent);
    const auto [received_low, received_high] = span(kReceived);
    const bool one = may_be_one && sent_low == received_low;
    const bool apart = one || sent_low >= received_high || received_low >= sent_high;
    return memory_ == Memory::gpu && apart && !rearranged;
}

/// Adds the run [begin, end) to `patterns`, as one more of the last one where it goes on as that did.
void Mirrors::add_run(MPI_Aint begin, MPI_Aint end, std::vector<Pattern> &patterns) {
    const auto width = static_cast<size_t>(end - begin);
    if (!patterns.empty() && patterns.back().width == width) {
        Pattern &last = patterns.back();
        if (last.times == 1)
            last.step = begin - last.begin;
        if (begin == last.begin + static_cast<MPI_Aint>(last.times) * last.step) {
            ++last.times;
            return;
        }
    }
    patterns.push_back({begin, width});
}

void Mirrors::begin() {
    if (PMPI_Comm_dup(MPI_COMM_SELF, &quiet) == MPI_SUCCESS)
        PMPI_Comm_set_errhandler(quiet, MPI_ERRORS_RETURN);
}

void Mirrors::end() {
    if (quiet != MPI_COMM_NULL)
        PMPI_Comm_free(&quiet);
}

/// What MPI itself writes where it unpacks an element. MPI_SUCCESS, or why it cannot: the type was not committed, say.
int Mirrors::find_patterns(const Layout &layout, std::vector<Pattern> &patterns) {
    MPI_Aint lower = 0;
    MPI_Aint span = 0;
    if (layout.size > INT_MAX || PMPI_Type_get_true_extent(layout.type, &lower, &span) != MPI_SUCCESS)
        return MPI_ERR_OTHER;
    const std::vector<unsigned char> ones(layout.size, 0xff);
    std::vector<unsigned char> written(static_cast<size_t>(span));
    int position = 0;
    // The element's address lies outside of the room where its data do not begin there.
    auto *element =
        reinterpret_cast<unsigned char *>(reinterpret_cast<uintptr_t>(written.data()) - static_cast<uintptr_t>(lower));
    const int code = PMPI_Unpack(ones.data(), static_cast<int>(layout.size), &position, element, 1, layout.type, quiet);
    if (code != MPI_SUCCESS)
        return code;
    const auto is_written = [](unsigned char byte) { return byte != 0; };
    for (auto at = written.begin(); at != written.end();) {
        const auto begin = std::find_if(at, written.end(), is_written);
        at = std::find_if_not(begin, written.end(), is_written);
        if (begin != at)
            add_run(lower + (begin - written.begin()), lower + (at - written.begin()), patterns);
    }
    return MPI_SUCCESS;
}

/// Adds the copies that bring a piece to its mirror. MPI_SUCCESS, or an error if MPI does not say where its data are.
int Mirrors::flatten(const Whereabouts::Piece &piece, ptrdiff_t moved, Patterns &known, std::vector<Rows> &to_host) {
    const auto add = [&](std::byte *from, size_t width, size_t height, ptrdiff_t pitch) {
        to_host.push_back({from + moved, from, width, height, pitch, pitch});
    };
    if (piece.layout.dense) {
        add(piece.begin, piece.count * piece.layout.size, 1, 0);
        return MPI_SUCCESS;
    }
    const auto [found, is_new] = known.try_emplace(piece.layout.type);
    if (is_new)
        if (const int code = find_patterns(piece.layout, found->second); code != MPI_SUCCESS)
            return code;
    for (const Pattern &pattern : found->second) {
        if (pattern.times == 1) {
            add(piece.begin + pattern.begin, pattern.width, piece.count, piece.layout.extent);
            continue;
        }
        for (size_t i = 0; i < piece.count; ++i)
            add(piece.begin + static_cast<MPI_Aint>(i) * piece.layout.extent + pattern.begin, pattern.width,
                pattern.times, pattern.step);
    }
    return MPI_SUCCESS;
}

/// Of the alignment that the GPU's memory has, which programs' reductions may rely on.
bool Mirrors::make_room(std::byte *low, std::byte *high, ptrdiff_t &moved) {
    constexpr uintptr_t kAlignment = 256;
    auto room =
        std::unique_ptr<std::byte[]>(new (std::nothrow) std::byte[static_cast<size_t>(high - low) + kAlignment]);
    if (room == nullptr)
        return false;
    const auto begin = reinterpret_cast<uintptr_t>(room.get());
    const auto wanted = reinterpret_cast<uintptr_t>(low);
    moved = static_cast<ptrdiff_t>(begin + (wanted - begin) % kAlignment - wanted);
    rooms_.push_back(std::move(room));
    return true;
}

int Mirrors::make(const Whereabouts &where, bool whole, std::string &why) {
    std::array<std::byte *, 2> low{};
    std::array<std::byte *, 2> high{};
    // All of a buffer has one mirror, or none.
    for (const size_t side : {0, 1}) {
        const auto &pieces = where.pieces_[side];
        const auto found = std::find_if(pieces.begin(), pieces.end(), [](const auto &piece) { return piece.on_gpu; });
        if (found == pieces.end())
            continue;
        near_ = found->low;
        std::tie(low[side], high[side]) = where.span(static_cast<Whereabouts::Side>(side));
    }
    // Data that overlap have one mirror: MPI must see that they do.
    if (low[0] < high[1] && low[1] < high[0]) {
        low[0] = low[1] = std::min(low[0], low[1]);
        high[0] = high[1] = std::max(high[0], high[1]);
    }
    for (const size_t side : {0, 1}) {
        if (side == 1 && low[1] == low[0] && high[1] == high[0])
            moved_[1] = moved_[0];
        else if (low[side] != nullptr && !make_room(low[side], high[side], moved_[side])) {
            why = "no memory for a copy of what is on the GPU";
            return MPI_ERR_OTHER;
        }
    }
    Patterns known;
    for (const size_t side : {0, 1})
        for (const auto &piece : where.pieces_[side]) {
            std::vector<Rows> rows;
            if (low[side] == nullptr)
                continue;
            if (const int code = flatten(piece, moved_[side], known, rows); code != MPI_SUCCESS) {
                int error_class = MPI_ERR_OTHER;
                PMPI_Error_class(code, &error_class);
                if (error_class == MPI_ERR_TYPE)
                    return MPI_ERR_TYPE;
                why = "MPI does not say where the data of a type are";
                return MPI_ERR_OTHER;
            }
            if (side == 0 || !whole || !where.whole_)
                to_host_.insert(to_host_.end(), rows.begin(), rows.end());
            for (const Rows &row : rows)
                if (side == 1)
                    to_gpu_.push_back({const_cast<std::byte *>(row.from), row.to, row.width, row.height, row.to_pitch,
                                       row.from_pitch});
        }
    why = read();
    return why.empty() ? MPI_SUCCESS : MPI_ERR_OTHER;
}

std::string Mirrors::read() const {
    return Gpus::instance().copy(to_host_, near_);
}

std::string Mirrors::write() const {
    return Gpus::instance().copy(to_gpu_, near_);
}

}  // namespace flx::preload
