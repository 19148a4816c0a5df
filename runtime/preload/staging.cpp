#include "staging.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <new>

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

int no_memory(MPI_Comm comm) {
    PMPI_Comm_call_errhandler(comm, MPI_ERR_NO_MEM);
    return MPI_ERR_NO_MEM;
}

}  // namespace

bool Aside::make(size_t bytes) {
    memory_.reset(new (std::nothrow) std::byte[std::max<size_t>(bytes, 1)]);
    return memory_ != nullptr;
}

int pack(const void *buffer, size_t count, const Layout &layout, std::byte *bytes, MPI_Comm comm) {
    if (layout.size == 0 || count == 0)
        return MPI_SUCCESS;
    const auto *from = static_cast<const std::byte *>(buffer);
    if (layout.dense) {
        std::memcpy(bytes, from, count * layout.size);
        return MPI_SUCCESS;
    }
    if (layout.size > INT_MAX)
        return too_long(comm);
    for (size_t done = 0; done < count;) {
        const size_t now = std::min(count - done, elements_at_once(layout));
        int position = 0;
        const int code =
            PMPI_Pack(from + static_cast<MPI_Aint>(done) * layout.extent, static_cast<int>(now), layout.type,
                      bytes + done * layout.size, static_cast<int>(now * layout.size), &position, comm);
        if (code != MPI_SUCCESS)
            return code;
        done += now;
    }
    return MPI_SUCCESS;
}

int unpack(const std::byte *bytes, void *buffer, size_t count, const Layout &layout, MPI_Comm comm) {
    if (layout.size == 0 || count == 0)
        return MPI_SUCCESS;
    auto *to = static_cast<std::byte *>(buffer);
    if (layout.dense) {
        std::memcpy(to, bytes, count * layout.size);
        return MPI_SUCCESS;
    }
    if (layout.size > INT_MAX)
        return too_long(comm);
    for (size_t done = 0; done < count;) {
        const size_t now = std::min(count - done, elements_at_once(layout));
        int position = 0;
        const int code =
            PMPI_Unpack(bytes + done * layout.size, static_cast<int>(now * layout.size), &position,
                        to + static_cast<MPI_Aint>(done) * layout.extent, static_cast<int>(now), layout.type, comm);
        if (code != MPI_SUCCESS)
            return code;
        done += now;
    }
    return MPI_SUCCESS;
}

int Packed::take(const void *buffer, size_t count, const Layout &layout, bool filled, MPI_Comm comm) {
    layout_ = layout;
    count_ = count;
    data_ = const_cast<void *>(buffer);
    if (layout.dense)
        return MPI_SUCCESS;
    if (!aside_.make(count * layout.size))
        return no_memory(comm);
    data_ = aside_.data();
    return filled ? pack(buffer, count, layout, aside_.data(), comm) : MPI_SUCCESS;
}

int Packed::keep_apart(const void *other, size_t bytes) {
    const auto *a = static_cast<const std::byte *>(data_);
    const auto *b = static_cast<const std::byte *>(other);
    const size_t mine = count_ * layout_.size;
    if (mine == 0 || bytes == 0 || a + mine <= b || b + bytes <= a)
        return MPI_SUCCESS;
    if (!aside_.make(mine))
        return no_memory(MPI_COMM_SELF);
    std::memcpy(aside_.data(), data_, mine);
    data_ = aside_.data();
    return MPI_SUCCESS;
}

int Packed::deliver(void *buffer, MPI_Comm comm) const {
    return layout_.dense ? MPI_SUCCESS : unpack(static_cast<const std::byte *>(data_), buffer, count_, layout_, comm);
}

int PackedBlocks::take(std::span<const Block> blocks, bool filled, size_t *sizes, size_t *displacements,
                       MPI_Comm comm) {
    bool dense = true;
    size_t total = 0;
    std::byte *first = nullptr;
    for (size_t i = 0; i < blocks.size(); ++i) {
        sizes[i] = blocks[i].count * blocks[i].layout.size;
        displacements[i] = total;
        total += sizes[i];
        dense = dense && (blocks[i].layout.dense || sizes[i] == 0);
        if (sizes[i] != 0 && (first == nullptr || blocks[i].begin < first))
            first = blocks[i].begin;
    }
    if (dense) {
        // Displacements of MPI may be negative, those of FLX are not: they are counted from the lowest block.
        for (size_t i = 0; i < blocks.size(); ++i)
            displacements[i] = sizes[i] == 0 ? 0 : static_cast<size_t>(blocks[i].begin - first);
        data_ = first;
        return MPI_SUCCESS;
    }
    if (!aside_.make(total))
        return no_memory(comm);
    data_ = aside_.data();
    for (size_t i = 0; filled && i < blocks.size(); ++i)
        if (const int code =
                pack(blocks[i].begin, blocks[i].count, blocks[i].layout, aside_.data() + displacements[i], comm);
            code != MPI_SUCCESS)
            return code;
    return MPI_SUCCESS;
}

int PackedBlocks::deliver(std::span<const Block> blocks, const size_t *displacements, MPI_Comm comm) const {
    if (aside_.data() == nullptr)
        return MPI_SUCCESS;
    for (size_t i = 0; i < blocks.size(); ++i)
        if (const int code =
                unpack(aside_.data() + displacements[i], blocks[i].begin, blocks[i].count, blocks[i].layout, comm);
            code != MPI_SUCCESS)
            return code;
    return MPI_SUCCESS;
}

}  // namespace flx::preload
