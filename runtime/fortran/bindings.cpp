/// What module flx calls: arrays come as C descriptors (ISO_Fortran_binding.h), which say type, size and strides.
#include <ISO_Fortran_binding.h>
#include <fmt/format.h>
#include <mpi.h>

#include <cstddef>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "flx.h"

#pragma GCC visibility push(default)
extern "C" {
int flx_fortran_in_place = 0;
}
#pragma GCC visibility pop

namespace {

/// Where this is not empty it is the thread's last error; else FLX has it.
thread_local std::string sentence;

flx_status_t refuse(std::string why) {
    sentence = std::move(why);
    return FLX_ERR_ARGUMENT;
}

/// Communicators with an open group, whose arrays must not be copied.
class Groups {
  public:
    void set(flx_comm_t comm, bool open) {
        const std::lock_guard guard(mutex_);
        if (open)
            open_.insert(comm);
        else
            open_.erase(comm);
    }
    bool has(flx_comm_t comm) {
        const std::lock_guard guard(mutex_);
        return open_.count(comm) != 0;
    }

  private:
    std::mutex mutex_;
    std::unordered_set<flx_comm_t> open_;
};

Groups &groups() {
    static Groups all;
    return all;
}

/// A Fortran array (or scalar) as elements in a row: where it lies, or a copy if it has holes.
class Array {
  public:
    /// `filled`: its elements are to be read.
    flx_status_t take(const CFI_cdesc_t *array, const char *name, bool filled, flx_comm_t comm) {
        array_ = array;
        count_ = 1;
        bool contiguous = true;
        for (int d = 0; d < array->rank; ++d) {
            if (array->dim[d].extent < 0)
                return refuse(fmt::format("{} is an array of assumed size; pass a section of it, as a(1:n)", name));
            contiguous = contiguous && (array->dim[d].extent <= 1 ||
                                        array->dim[d].sm == static_cast<CFI_index_t>(count_ * array->elem_len));
            count_ *= static_cast<size_t>(array->dim[d].extent);
        }
        data_ = static_cast<std::byte *>(array->base_addr);
        if (contiguous || count_ == 0)
            return FLX_SUCCESS;
        if (groups().has(comm))
            return refuse(fmt::format("{} is not contiguous; in a group arrays must be", name));
        copy_.resize(count_ * array->elem_len);
        data_ = copy_.data();
        if (filled)
            walk([](std::byte *memory, std::byte *row, size_t bytes) { std::memcpy(row, memory, bytes); });
        return FLX_SUCCESS;
    }
    /// Brings what FLX wrote into a copy to the array. Passes `status` on.
    flx_status_t deliver(flx_status_t status) {
        if (status == FLX_SUCCESS && !copy_.empty())
            walk([](std::byte *memory, std::byte *row, size_t bytes) { std::memcpy(memory, row, bytes); });
        return status;
    }
    [[nodiscard]] void *data() const { return data_; }
    [[nodiscard]] size_t count() const { return count_; }
    [[nodiscard]] size_t element() const { return array_->elem_len; }
    [[nodiscard]] size_t bytes() const { return count_ * array_->elem_len; }
    [[nodiscard]] CFI_type_t type() const { return array_->type; }

  private:
    /// Calls `move` with each element in the array and its place in the copy.
    template <typename Move>
    void walk(Move move) {
        std::vector<CFI_index_t> at(array_->rank);
        for (size_t i = 0; i < count_; ++i) {
            auto *memory = static_cast<std::byte *>(array_->base_addr);
            for (int d = 0; d < array_->rank; ++d)
                memory += at[d] * array_->dim[d].sm;
            move(memory, copy_.data() + i * array_->elem_len, array_->elem_len);
            for (int d = 0; d < array_->rank && ++at[d] == array_->dim[d].extent; ++d)
                at[d] = 0;
        }
    }

    const CFI_cdesc_t *array_ = nullptr;
    std::vector<std::byte> copy_;
    std::byte *data_ = nullptr;
    size_t count_ = 0;
};

bool in_place(const CFI_cdesc_t *array) {
    return array->base_addr == &flx_fortran_in_place;
}

/// What FLX adds: `factor` of its elements are one of Fortran's.
struct Elements {
    flx_dtype_t dtype = FLX_INT8;
    size_t factor = 1;
};

flx_status_t elements_of(const Array &array, int op, Elements &elements) {
    const size_t bytes = array.element();
    // gfortran's types are a class and, above it, a kind.
    switch (array.type() & CFI_type_mask) {
        case CFI_type_Integer:
            if (bytes <= 8) {
                elements = {bytes == 1 ? FLX_INT8 : bytes == 2 ? FLX_INT16 : bytes == 4 ? FLX_INT32 : FLX_INT64, 1};
                return FLX_SUCCESS;
            }
            break;
        case CFI_type_Real:
            if (bytes == sizeof(float) || bytes == sizeof(double)) {
                elements = {bytes == sizeof(float) ? FLX_F32 : FLX_F64, 1};
                return FLX_SUCCESS;
            }
            break;
        case CFI_type_Complex:
            // A sum of complex numbers is one of their parts.
            if ((bytes == 2 * sizeof(float) || bytes == 2 * sizeof(double)) && (op == FLX_SUM || op == FLX_AVG)) {
                elements = {bytes == 2 * sizeof(float) ? FLX_F32 : FLX_F64, 2};
                return FLX_SUCCESS;
            }
            break;
        default:
            break;
    }
    return refuse(
        "the arrays are of a type that this reduction does not take; integers of 1 to 8 bytes, reals of 4 and 8 "
        "are allowed, and complex numbers of these in FLX_SUM and FLX_AVG");
}

flx_status_t check_alike(const Array &send, const Array &receive) {
    if (send.type() == receive.type() && send.element() == receive.element())
        return FLX_SUCCESS;
    return refuse("sendbuf and recvbuf are of different types or kinds");
}

flx_status_t check_size(const char *name, size_t count, const char *what, size_t wanted) {
    if (count == wanted)
        return FLX_SUCCESS;
    return refuse(fmt::format("{} has {} elements; {} {} are needed", name, count, what, wanted));
}

flx_status_t multiple_of(const char *name, size_t count, int size) {
    if (count % size == 0)
        return FLX_SUCCESS;
    return refuse(fmt::format("{} has {} elements; a multiple of the {} ranks is needed", name, count, size));
}

/// Counts or displacements, one for each rank.
flx_status_t numbers_of(const CFI_cdesc_t *array, const char *name, int size, size_t factor,
                        std::vector<size_t> &numbers) {
    Array row;
    if (const flx_status_t status = row.take(array, name, true, nullptr); status != FLX_SUCCESS)
        return status;
    if ((row.type() & CFI_type_mask) != CFI_type_Integer || (row.element() != 4 && row.element() != 8))
        return refuse(fmt::format("{} is not of integers of 4 or 8 bytes", name));
    if (const flx_status_t status = check_size(name, row.count(), "one for each rank:", size); status != FLX_SUCCESS)
        return status;
    for (int rank = 0; rank < size; ++rank) {
        const int64_t number = row.element() == 4 ? static_cast<const int32_t *>(row.data())[rank]
                                                  : static_cast<const int64_t *>(row.data())[rank];
        if (number < 0)
            return refuse(fmt::format("{} has {} for rank {}; 0 or more is needed", name, number, rank));
        numbers.push_back(static_cast<size_t>(number) * factor);
    }
    return FLX_SUCCESS;
}

#define TRY(expression)                                                  \
    do {                                                                 \
        if (const flx_status_t try_ = (expression); try_ != FLX_SUCCESS) \
            return try_;                                                 \
    } while (false)

template <typename Body>
flx_status_t guarded(Body &&body) {
    try {
        sentence.clear();
        return body();
    } catch (const std::exception &error) {
        sentence = error.what();
        return FLX_ERR_SYSTEM;
    }
}

/// sendbuf as FLX takes it.
flx_status_t take_input(const CFI_cdesc_t *sendbuf, const Array &receive, flx_comm_t comm, Array &send,
                        const void *&data) {
    if (in_place(sendbuf)) {
        data = FLX_IN_PLACE;
        return FLX_SUCCESS;
    }
    TRY(send.take(sendbuf, "sendbuf", true, comm));
    data = send.data();
    return check_alike(send, receive);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

const char *flx_fortran_last_error() {
    return sentence.empty() ? flx_last_error() : sentence.c_str();
}

flx_status_t flx_fortran_comm_create(MPI_Fint mpi_comm, flx_comm_t *comm) {
    return guarded([&] { return flx_comm_create(PMPI_Comm_f2c(mpi_comm), nullptr, comm); });
}

flx_status_t flx_fortran_comm_dup(flx_comm_t comm, flx_comm_t *made) {
    return guarded([&] { return flx_comm_dup(comm, made); });
}

flx_status_t flx_fortran_comm_split(flx_comm_t comm, int color, int key, flx_comm_t *made) {
    return guarded([&] { return flx_comm_split(comm, color, key, made); });
}

flx_status_t flx_fortran_comm_free(flx_comm_t *comm) {
    return guarded([&] {
        groups().set(*comm, false);
        return flx_comm_free(comm);
    });
}

flx_status_t flx_fortran_comm_rank(flx_comm_t comm, int *rank) {
    return guarded([&] { return flx_comm_rank(comm, rank); });
}

flx_status_t flx_fortran_comm_size(flx_comm_t comm, int *size) {
    return guarded([&] { return flx_comm_size(comm, size); });
}

flx_status_t flx_fortran_allreduce(const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, int op, flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        Array send;
        Array receive;
        Elements elements;
        const void *data = nullptr;
        TRY(receive.take(recvbuf, "recvbuf", in_place(sendbuf), comm));
        TRY(take_input(sendbuf, receive, comm, send, data));
        if (data != FLX_IN_PLACE)
            TRY(check_size("sendbuf", send.count(), "as many as in recvbuf:", receive.count()));
        TRY(elements_of(receive, op, elements));
        return receive.deliver(flx_allreduce(data, receive.data(), receive.count() * elements.factor, elements.dtype,
                                             static_cast<flx_op_t>(op), comm));
    });
}

flx_status_t flx_fortran_reduce(const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, int op, int root, flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        int rank = 0;
        TRY(flx_comm_rank(comm, &rank));
        Array send;
        Array receive;
        Elements elements;
        const void *data = nullptr;
        if (rank != root) {
            TRY(send.take(sendbuf, "sendbuf", true, comm));
            TRY(elements_of(send, op, elements));
            return flx_reduce(send.data(), nullptr, send.count() * elements.factor, elements.dtype,
                              static_cast<flx_op_t>(op), root, comm);
        }
        TRY(receive.take(recvbuf, "recvbuf", in_place(sendbuf), comm));
        TRY(take_input(sendbuf, receive, comm, send, data));
        if (data != FLX_IN_PLACE)
            TRY(check_size("sendbuf", send.count(), "as many as in recvbuf:", receive.count()));
        TRY(elements_of(receive, op, elements));
        return receive.deliver(flx_reduce(data, receive.data(), receive.count() * elements.factor, elements.dtype,
                                          static_cast<flx_op_t>(op), root, comm));
    });
}

flx_status_t flx_fortran_reduce_scatter_block(const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, int op,
                                              flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        int size = 1;
        TRY(flx_comm_size(comm, &size));
        Array send;
        Array receive;
        Elements elements;
        const void *data = nullptr;
        TRY(receive.take(recvbuf, "recvbuf", in_place(sendbuf), comm));
        TRY(take_input(sendbuf, receive, comm, send, data));
        size_t count = receive.count();
        if (data == FLX_IN_PLACE) {
            TRY(multiple_of("recvbuf", receive.count(), size));
            count /= size;
        } else {
            TRY(check_size("sendbuf", send.count(), "those of recvbuf for each rank:", receive.count() * size));
        }
        TRY(elements_of(receive, op, elements));
        return receive.deliver(flx_reduce_scatter_block(data, receive.data(), count * elements.factor, elements.dtype,
                                                        static_cast<flx_op_t>(op), comm));
    });
}

flx_status_t flx_fortran_allgather(const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        int size = 1;
        TRY(flx_comm_size(comm, &size));
        Array send;
        Array receive;
        const void *data = nullptr;
        TRY(receive.take(recvbuf, "recvbuf", in_place(sendbuf), comm));
        TRY(take_input(sendbuf, receive, comm, send, data));
        if (data == FLX_IN_PLACE)
            TRY(multiple_of("recvbuf", receive.count(), size));
        else
            TRY(check_size("recvbuf", receive.count(), "those of sendbuf from each rank:", send.count() * size));
        return receive.deliver(flx_allgather(data, receive.data(), receive.bytes() / size, FLX_UINT8, comm));
    });
}

flx_status_t flx_fortran_bcast(CFI_cdesc_t *buf, int root, flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        Array array;
        TRY(array.take(buf, "buf", true, comm));
        return array.deliver(flx_bcast(array.data(), array.bytes(), FLX_UINT8, root, comm));
    });
}

flx_status_t flx_fortran_alltoall(const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        int size = 1;
        TRY(flx_comm_size(comm, &size));
        Array send;
        Array receive;
        const void *data = nullptr;
        TRY(receive.take(recvbuf, "recvbuf", in_place(sendbuf), comm));
        TRY(take_input(sendbuf, receive, comm, send, data));
        TRY(multiple_of("recvbuf", receive.count(), size));
        if (data != FLX_IN_PLACE)
            TRY(check_size("sendbuf", send.count(), "as many as in recvbuf:", receive.count()));
        return receive.deliver(flx_alltoall(data, receive.data(), receive.bytes() / size, FLX_UINT8, comm));
    });
}

flx_status_t flx_fortran_alltoallv(const CFI_cdesc_t *sendbuf, const CFI_cdesc_t *sendcounts,
                                   const CFI_cdesc_t *sdispls, CFI_cdesc_t *recvbuf, const CFI_cdesc_t *recvcounts,
                                   const CFI_cdesc_t *rdispls, flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        int size = 1;
        TRY(flx_comm_size(comm, &size));
        Array send;
        Array receive;
        const void *data = nullptr;
        // What lies between the blocks stays as it is.
        TRY(receive.take(recvbuf, "recvbuf", true, comm));
        TRY(take_input(sendbuf, receive, comm, send, data));
        std::vector<size_t> numbers[4];
        const size_t factor = receive.element();
        if (data != FLX_IN_PLACE) {
            TRY(numbers_of(sendcounts, "sendcounts", size, factor, numbers[0]));
            TRY(numbers_of(sdispls, "sdispls", size, factor, numbers[1]));
        }
        TRY(numbers_of(recvcounts, "recvcounts", size, factor, numbers[2]));
        TRY(numbers_of(rdispls, "rdispls", size, factor, numbers[3]));
        for (int side = data == FLX_IN_PLACE ? 2 : 0; side < 4; side += 2)
            for (int rank = 0; rank < size; ++rank)
                if (numbers[side][rank] != 0 &&
                    numbers[side][rank] + numbers[side + 1][rank] > (side == 0 ? send : receive).bytes())
                    return refuse(fmt::format("the block of rank {} goes beyond the end of {}", rank,
                                              side == 0 ? "sendbuf" : "recvbuf"));
        return receive.deliver(flx_alltoallv(data, receive.data(), numbers[0].data(), numbers[1].data(),
                                             numbers[2].data(), numbers[3].data(), FLX_UINT8, comm));
    });
}

flx_status_t flx_fortran_barrier(flx_comm_t comm) {
    return guarded([&] { return flx_barrier(comm); });
}

flx_status_t flx_fortran_send(const CFI_cdesc_t *sendbuf, int dest, flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        Array send;
        TRY(send.take(sendbuf, "sendbuf", true, comm));
        return flx_send(send.data(), send.bytes(), FLX_UINT8, dest, comm);
    });
}

flx_status_t flx_fortran_recv(CFI_cdesc_t *recvbuf, int source, flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        Array receive;
        TRY(receive.take(recvbuf, "recvbuf", false, comm));
        return receive.deliver(flx_recv(receive.data(), receive.bytes(), FLX_UINT8, source, comm));
    });
}

flx_status_t flx_fortran_sendrecv(const CFI_cdesc_t *sendbuf, int dest, CFI_cdesc_t *recvbuf, int source,
                                  flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        Array send;
        Array receive;
        TRY(send.take(sendbuf, "sendbuf", true, comm));
        TRY(receive.take(recvbuf, "recvbuf", false, comm));
        return receive.deliver(
            flx_sendrecv(send.data(), receive.data(), send.bytes(), receive.bytes(), FLX_UINT8, dest, source, comm));
    });
}

flx_status_t flx_fortran_group_begin(flx_comm_t comm) {
    return guarded([&] {
        const flx_status_t status = flx_group_begin(comm);
        if (status == FLX_SUCCESS)
            groups().set(comm, true);
        return status;
    });
}

flx_status_t flx_fortran_group_end(flx_comm_t comm) {
    return guarded([&] {
        groups().set(comm, false);
        return flx_group_end(comm);
    });
}

}  // extern "C"
#pragma GCC visibility pop
