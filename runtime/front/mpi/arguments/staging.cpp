#include "runtime/front/mpi/arguments/staging.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

namespace flx::preload {
namespace {

/// MPI_Pack counts bytes in an int: how many elements it is given at a time.
size_t elements_at_once(const Layout &layout) {
    constexpr size_t kBytes = size_t{1} << 30;
    return std::clamp<size_t>(kBytes / layout.size, 1, INT_MAX);
}

int too_long(MPI_Comm comm) {
    PMPI_Comm_call_errhandler(comm, MPI_ERR_COUNT);
    return MPI_ERR_COUNT;
}

/// Calls `convert` with where each piece begins in the buffer and packed, its elements and its packed bytes.
template <typename Convert>
int piece_by_piece(size_t count, const Layout &layout, MPI_Comm comm, Convert &&convert) {
    if (layout.size == 0 || count == 0)
        return MPI_SUCCESS;
    if (layout.size > INT_MAX)
        return too_long(comm);
    for (size_t done = 0; done < count;) {
        const size_t now = std::min(count - done, elements_at_once(layout));
        const int code = convert(static_cast<MPI_Aint>(done) * layout.extent, done * layout.size, static_cast<int>(now),
                                 static_cast<int>(now * layout.size));
        if (code != MPI_SUCCESS)
            return code;
        done += now;
    }
    return MPI_SUCCESS;
}

/// Calls `convert` with `address`, `elements` and `type`. Null is an address where MPI_BOTTOM is null, but MPICH's
/// MPI_Pack takes it for none: the same elements are counted from elsewhere then.
template <typename Address, typename Convert>
int from_address(Address address, int elements, MPI_Datatype type, Convert &&convert) {
    if (address != nullptr)
        return convert(address, elements, type);
    constexpr MPI_Aint kElsewhere = 4096;
    const MPI_Aint back = -kElsewhere;
    MPI_Datatype moved = MPI_DATATYPE_NULL;
    int code = PMPI_Type_create_hindexed(1, &elements, &back, type, &moved);
    if (code != MPI_SUCCESS)
        return code;
    code = PMPI_Type_commit(&moved);
    if (code == MPI_SUCCESS)
        code = convert(reinterpret_cast<Address>(kElsewhere), 1, moved);
    PMPI_Type_free(&moved);
    return code;
}

int no_memory(MPI_Comm comm) {
    PMPI_Comm_call_errhandler(comm, MPI_ERR_NO_MEM);
    return MPI_ERR_NO_MEM;
}

/// What came of copies from or to a GPU, `why` being empty or a sentence.
int copied(const std::string &why, MPI_Comm comm) {
    if (why.empty())
        return MPI_SUCCESS;
    fmt::print(stderr, "flx_mpi: {}\n", why);
    PMPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
    return MPI_ERR_OTHER;
}

int keep(Layout &layout, std::vector<MPI_Datatype> &kept) {
    const int code = PMPI_Type_dup(layout.type, &layout.type);
    if (code == MPI_SUCCESS)
        kept.push_back(layout.type);
    return code;
}

}  // namespace

bool Aside::make(size_t bytes) {
    memory_.reset(new (std::nothrow) std::byte[std::max<size_t>(bytes, 1)]);
    return memory_ != nullptr;
}

int pack(const void *buffer, size_t count, const Layout &layout, std::byte *bytes, MPI_Comm comm) {
    const auto *from = static_cast<const std::byte *>(buffer);
    if (layout.dense && count != 0 && layout.size != 0) {
        std::memcpy(bytes, from, count * layout.size);
        return MPI_SUCCESS;
    }
    return piece_by_piece(count, layout, comm, [&](MPI_Aint at, size_t packed_at, int elements, int packed_bytes) {
        int position = 0;
        return from_address(from + at, elements, layout.type, [&](const void *first, int number, MPI_Datatype type) {
            return PMPI_Pack(first, number, type, bytes + packed_at, packed_bytes, &position, comm);
        });
    });
}

int unpack(const std::byte *bytes, void *buffer, size_t count, const Layout &layout, MPI_Comm comm) {
    auto *to = static_cast<std::byte *>(buffer);
    if (layout.dense && count != 0 && layout.size != 0) {
        std::memcpy(to, bytes, count * layout.size);
        return MPI_SUCCESS;
    }
    return piece_by_piece(count, layout, comm, [&](MPI_Aint at, size_t packed_at, int elements, int packed_bytes) {
        int position = 0;
        return from_address(to + at, elements, layout.type, [&](void *first, int number, MPI_Datatype type) {
            return PMPI_Unpack(bytes + packed_at, packed_bytes, &position, first, number, type, comm);
        });
    });
}

int Packed::take(const void *buffer, size_t count, const Layout &layout, bool filled, MPI_Comm comm) {
    layout_ = layout;
    count_ = count;
    filled_ = filled;
    // A rank that has nothing may say any address. FLX goes by whose memory it is, and not all ranks' counts are 0.
    static std::byte nothing{};
    const bool empty = count * layout.size == 0 && buffer != nullptr;
    buffer_ = data_ = empty ? &nothing : const_cast<void *>(buffer);
    if (layout.dense || empty)
        return MPI_SUCCESS;
    if (!aside_.make(count * layout.size))
        return no_memory(comm);
    data_ = aside_.data();
    return fill(comm);
}

int Packed::keep_apart(const Span &other) {
    const size_t mine = count_ * layout_.size;
    if (data_ != buffer_ || !other.overlaps({static_cast<const std::byte *>(data_), mine}))
        return MPI_SUCCESS;
    if (!aside_.make(mine))
        return no_memory(MPI_COMM_SELF);
    data_ = aside_.data();
    return fill(MPI_COMM_SELF);
}

int Packed::take_otherwise(const void *buffer, size_t count, const Layout &layout, bool filled, size_t ranks,
                           size_t length, MPI_Comm comm) {
    layout_ = layout;
    // Whole elements: of a part of one MPI_Unpack could not say where it ends.
    count_ = layout.size == 0 ? 0 : std::min(count, length / layout.size);
    stride_ = static_cast<MPI_Aint>(count) * layout.extent;
    filled_ = filled;
    buffer_ = const_cast<void *>(buffer);
    blocks_ = ranks;
    block_ = length;
    if (!aside_.make(ranks * length))
        return no_memory(comm);
    data_ = aside_.data();
    std::memset(data_, 0, ranks * length);
    return fill(comm);
}

int Packed::fill(MPI_Comm comm) {
    if (!filled_ || data_ == buffer_)
        return MPI_SUCCESS;
    for (size_t i = 0; i < blocks_; ++i) {
        const auto *from = static_cast<const std::byte *>(buffer_) + static_cast<MPI_Aint>(i) * stride_;
        if (const int code = pack(from, count_, layout_, aside_.data() + i * block_, comm); code != MPI_SUCCESS)
            return code;
    }
    return MPI_SUCCESS;
}

int Packed::deliver(MPI_Comm comm) const {
    if (data_ == buffer_)
        return MPI_SUCCESS;
    for (size_t i = 0; i < blocks_; ++i) {
        auto *to = static_cast<std::byte *>(buffer_) + static_cast<MPI_Aint>(i) * stride_;
        if (const int code = unpack(aside_.data() + i * block_, to, count_, layout_, comm); code != MPI_SUCCESS)
            return code;
    }
    return MPI_SUCCESS;
}

int PackedBlocks::take(std::vector<Block> blocks, bool filled, size_t *sizes, size_t *displacements, MPI_Comm comm,
                       bool packed, const Span &other) {
    bool dense = !packed;
    size_t total = 0;
    std::byte *first = nullptr;
    std::byte *last = nullptr;
    for (size_t i = 0; i < blocks.size(); ++i) {
        sizes[i] = blocks[i].count * blocks[i].layout.size;
        displacements[i] = total;
        total += sizes[i];
        dense = dense && (blocks[i].layout.dense || sizes[i] == 0);
        if (sizes[i] != 0 && (first == nullptr || blocks[i].begin < first))
            first = blocks[i].begin;
        if (sizes[i] != 0 && (last == nullptr || blocks[i].begin + sizes[i] > last))
            last = blocks[i].begin + sizes[i];
    }
    bytes_ = static_cast<size_t>(last - first);
    if (dense && !other.overlaps({first, bytes_})) {
        // Displacements of MPI may be negative, those of FLX are not: they are counted from the lowest block.
        for (size_t i = 0; i < blocks.size(); ++i)
            displacements[i] = sizes[i] == 0 ? 0 : static_cast<size_t>(blocks[i].begin - first);
        data_ = first;
        return MPI_SUCCESS;
    }
    if (!aside_.make(total))
        return no_memory(comm);
    data_ = aside_.data();
    bytes_ = total;
    blocks_ = std::move(blocks);
    filled_ = filled;
    return fill(comm);
}

int PackedBlocks::fill(MPI_Comm comm) {
    if (!filled_)
        return MPI_SUCCESS;
    std::byte *to = aside_.data();
    for (const Block &block : blocks_) {
        if (const int code = pack(block.begin, block.count, block.layout, to, comm); code != MPI_SUCCESS)
            return code;
        to += block.count * block.layout.size;
    }
    return MPI_SUCCESS;
}

int PackedBlocks::deliver(MPI_Comm comm) const {
    const std::byte *from = aside_.data();
    for (const Block &block : blocks_) {
        if (const int code = unpack(from, block.begin, block.count, block.layout, comm); code != MPI_SUCCESS)
            return code;
        from += block.count * block.layout.size;
    }
    return MPI_SUCCESS;
}

Lifted::~Lifted() {
    if (data_ != nullptr)
        Gpus::instance().free(data_);
}

std::string Lifted::take(void *host, size_t bytes, bool filled, bool written) {
    std::string why;
    host_ = written ? host : nullptr;
    bytes_ = bytes;
    data_ = Gpus::instance().allocate(bytes, why);
    if (data_ == nullptr || !filled)
        return why;
    return Gpus::instance().copy({{static_cast<std::byte *>(data_), static_cast<const std::byte *>(host), bytes}},
                                 data_);
}

std::string Lifted::deliver() const {
    if (data_ == nullptr || host_ == nullptr)
        return {};
    return Gpus::instance().copy({{static_cast<std::byte *>(host_), static_cast<const std::byte *>(data_), bytes_}},
                                 data_);
}

int Staging::read(MPI_Comm comm) {
    if (const int code = mirrors == nullptr ? MPI_SUCCESS : copied(mirrors->read(), comm); code != MPI_SUCCESS)
        return code;
    for (Packed *packed : {&in, &out})
        if (const int code = packed->fill(comm); code != MPI_SUCCESS)
            return code;
    for (PackedBlocks *packed : {&blocks_in, &blocks_out})
        if (const int code = packed->fill(comm); code != MPI_SUCCESS)
            return code;
    return MPI_SUCCESS;
}

int Staging::write(MPI_Comm comm) const {
    int code = lifted_out == nullptr ? MPI_SUCCESS : copied(lifted_out->deliver(), comm);
    if (code == MPI_SUCCESS)
        code = out.deliver(comm);
    if (code == MPI_SUCCESS)
        code = blocks_out.deliver(comm);
    return code == MPI_SUCCESS && mirrors != nullptr ? copied(mirrors->write(), comm) : code;
}

int Packed::keep_types(std::vector<MPI_Datatype> &kept) {
    return data_ != buffer_ && layout_.type != MPI_DATATYPE_NULL ? keep(layout_, kept) : MPI_SUCCESS;
}

int PackedBlocks::keep_types(std::vector<MPI_Datatype> &kept) {
    for (Block &block : blocks_)
        if (const int code = keep(block.layout, kept); code != MPI_SUCCESS)
            return code;
    return MPI_SUCCESS;
}

int Staging::keep_types() {
    for (Packed *packed : {&in, &out})
        if (const int code = packed->keep_types(kept_); code != MPI_SUCCESS)
            return code;
    for (PackedBlocks *packed : {&blocks_in, &blocks_out})
        if (const int code = packed->keep_types(kept_); code != MPI_SUCCESS)
            return code;
    return MPI_SUCCESS;
}

Staging::~Staging() {
    for (MPI_Datatype type : kept_)
        PMPI_Type_free(&type);
}

}  // namespace flx::preload
