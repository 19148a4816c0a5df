/// \file flx.hpp
/// FLX in C++20: communicators that free themselves, spans for buffers, exceptions for errors. Header-only, over flx.h,
/// which says what each collective does.
///
///     flx::communicator comm(MPI_COMM_WORLD);
///     std::vector<float> gradients(1024);
///     comm.allreduce(std::span(gradients), flx::avg);
///
/// Element types are those of FLX, `std::complex` of floats in sums, and for collectives that only move data every type
/// that may be copied bit by bit. All ranks call with equal sizes, as flx.h says. A communicator is freed by all its
/// ranks, before MPI_Finalize.
#pragma once

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "flx.h"

namespace flx {

/// What a failed call throws. `what()` is FLX's sentence.
class error : public std::runtime_error {
  public:
    /// Made of a status that is not FLX_SUCCESS and of its sentence, which is copied.
    error(flx_status_t status, const std::string &sentence) : std::runtime_error(sentence), status_(status) {}
    /// What the call came to.
    [[nodiscard]] flx_status_t status() const noexcept { return status_; }

  private:
    flx_status_t status_;
};

/// Throws unless `status` is success.
inline void check(flx_status_t status) {
    if (status == FLX_SUCCESS)
        return;
    const std::string sentence = flx_last_error();
    throw error(status, sentence.empty() ? flx_strerror(status) : sentence);
}

/// The reduction FLX_SUM.
inline constexpr flx_op_t sum = FLX_SUM;
/// The reduction FLX_PROD.
inline constexpr flx_op_t prod = FLX_PROD;
/// The reduction FLX_MIN.
inline constexpr flx_op_t min = FLX_MIN;
/// The reduction FLX_MAX.
inline constexpr flx_op_t max = FLX_MAX;
/// The reduction FLX_AVG.
inline constexpr flx_op_t avg = FLX_AVG;

namespace detail {

template <typename T>
struct element;
template <typename T>
requires(std::is_integral_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 8) struct element<T> {
    static constexpr int width = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 2 : sizeof(T) == 4 ? 4 : 6;
    static constexpr flx_dtype_t dtype = static_cast<flx_dtype_t>(FLX_INT8 + width + (std::is_signed_v<T> ? 0 : 1));
    static constexpr std::size_t parts = 1;
};
template <>
struct element<float> {
    static constexpr flx_dtype_t dtype = FLX_F32;
    static constexpr std::size_t parts = 1;
};
template <>
struct element<double> {
    static constexpr flx_dtype_t dtype = FLX_F64;
    static constexpr std::size_t parts = 1;
};
/// A sum of complex numbers is one of their parts.
template <typename T>
requires(std::is_same_v<T, float> || std::is_same_v<T, double>) struct element<std::complex<T>> {
    static constexpr flx_dtype_t dtype = element<T>::dtype;
    static constexpr std::size_t parts = 2;
};

template <typename T>
inline constexpr bool is_complex = false;
template <typename T>
inline constexpr bool is_complex<std::complex<T>> = true;

}  // namespace detail

/// Types that reductions take.
template <typename T>
concept reducible = requires {
    detail::element<T>::dtype;
};

/// Types that collectives move: all that may be copied bit by bit.
template <typename T>
concept movable = std::is_trivially_copyable_v<T>;

/// Memory that collectives write into: a vector, an array, a span.
template <typename R>
concept buffer = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

/// Memory that collectives read, of elements of type T.
template <typename R, typename T>
concept input_of =
    std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && std::is_same_v<std::ranges::range_value_t<R>, T>;

/// Memory of flx_malloc for containers. Has no state: what one allocator gave, any other takes back.
template <typename T>
class allocator {
  public:
    /// What containers hold.
    using value_type = T;

    allocator() noexcept = default;
    template <typename U>
    /// An allocator of other elements becomes one of these.
    explicit(false) allocator(const allocator<U> &) noexcept {}

    /// Memory for `count` elements, not constructed. Throws std::bad_alloc.
    [[nodiscard]] T *allocate(std::size_t count) {
        void *memory = nullptr;
        if (count > SIZE_MAX / sizeof(T) || flx_malloc(count * sizeof(T), &memory) != FLX_SUCCESS)
            throw std::bad_alloc();
        return static_cast<T *>(memory);
    }
    /// Gives back what allocate() returned. No call under way uses it.
    void deallocate(T *memory, std::size_t) noexcept { flx_free(memory); }
    /// Always equal.
    template <typename U>
    bool operator==(const allocator<U> &) const noexcept {
        return true;
    }
};

/// A vector that ranks of a host map: collectives between them are faster with it.
///
///     flx::vector<float> gradients(1 << 24);
///     comm.allreduce(gradients, flx::avg);
template <typename T>
using vector = std::vector<T, allocator<T>>;

/// A communicator of FLX, which frees it when it goes. Moves, does not copy.
class communicator {
  public:
    /// None; `if (comm)` says so.
    communicator() noexcept = default;

    /// Makes a communicator with the ranks of `mpi_comm`: flx_comm_create, with knobs of the environment. Collective.
    explicit communicator(MPI_Comm mpi_comm) { check(flx_comm_create(mpi_comm, nullptr, &comm_)); }
    /// The same with the knobs of `config`, which begins as FLX_CONFIG_INIT.
    communicator(MPI_Comm mpi_comm, const flx_config_t &config) { check(flx_comm_create(mpi_comm, &config, &comm_)); }
    /// Makes one of processes that have no MPI: flx_comm_create_from_store of what the environment says. Collective.
    [[nodiscard]] static communicator from_store(const flx_config_t *config = nullptr) {
        communicator made;
        check(flx_comm_create_from_store(nullptr, 0, -1, 0, config, &made.comm_));
        return made;
    }
    /// Takes over; `other` is none afterwards.
    communicator(communicator &&other) noexcept : comm_(std::exchange(other.comm_, nullptr)) {}
    /// Frees this one (collective) and takes over; `other` is none afterwards.
    communicator &operator=(communicator &&other) noexcept {
        if (this != &other) {
            reset();
            comm_ = std::exchange(other.comm_, nullptr);
        }
        return *this;
    }
    /// Frees it, with all ranks.
    ~communicator() { reset(); }

    /// Frees it now; collective. It is none afterwards.
    void reset() noexcept {
        if (comm_ != nullptr)
            flx_comm_free(&comm_);
    }
    /// The handle for functions of flx.h, which stays this object's; null if it is none.
    [[nodiscard]] flx_comm_t get() const noexcept { return comm_; }
    /// See flx_comm_abort.
    void abort(const std::string &reason = {}) const { check(flx_comm_abort(comm_, reason.c_str())); }
    /// Whether it is one.
    explicit operator bool() const noexcept { return comm_ != nullptr; }

    /// A communicator of the same ranks: flx_comm_dup. Collective.
    [[nodiscard]] communicator dup() const {
        communicator made;
        check(flx_comm_dup(comm_, &made.comm_));
        return made;
    }
    /// flx_comm_split. Collective; with a negative `color` the result is none.
    [[nodiscard]] communicator split(int color, int key) const {
        communicator made;
        check(flx_comm_split(comm_, color, key, &made.comm_));
        return made;
    }
    /// This process's rank, from 0 to size() - 1.
    [[nodiscard]] int rank() const {
        int rank = 0;
        check(flx_comm_rank(comm_, &rank));
        return rank;
    }
    /// The number of ranks.
    [[nodiscard]] int size() const {
        int size = 0;
        check(flx_comm_size(comm_, &size));
        return size;
    }

    /// flx_allreduce in place: `out` holds this rank's contribution, and then the result.
    template <buffer Out>
    requires reducible<std::ranges::range_value_t<Out>>
    void allreduce(Out &&out, flx_op_t op) const {
        using T = std::ranges::range_value_t<Out>;
        check(flx_allreduce(FLX_IN_PLACE, std::ranges::data(out), parts<T>(std::ranges::size(out), op), dtype<T>, op,
                            comm_));
    }
    /// flx_allreduce; both have as many elements.
    template <buffer Out, input_of<std::ranges::range_value_t<Out>> In>
    requires reducible<std::ranges::range_value_t<Out>>
    void allreduce(const In &in, Out &&out, flx_op_t op) const {
        using T = std::ranges::range_value_t<Out>;
        same_size(std::ranges::size(in), std::ranges::size(out));
        check(flx_allreduce(std::ranges::data(in), std::ranges::data(out), parts<T>(std::ranges::size(out), op),
                            dtype<T>, op, comm_));
    }
    /// flx_allreduce of one value, whose reduction is returned. Not in a group.
    template <reducible T>
    [[nodiscard]] T allreduce(const T &value, flx_op_t op) const {
        T result = value;
        allreduce(std::span<T>(&result, 1), op);
        return result;
    }

    /// flx_reduce; both have as many elements. `out` is looked at on rank `root` only; elsewhere it may be an empty
    /// span.
    template <buffer Out, input_of<std::ranges::range_value_t<Out>> In>
    requires reducible<std::ranges::range_value_t<Out>>
    void reduce(const In &in, Out &&out, flx_op_t op, int root) const {
        using T = std::ranges::range_value_t<Out>;
        if (rank() == root)
            same_size(std::ranges::size(in), std::ranges::size(out));
        check(flx_reduce(std::ranges::data(in), std::ranges::data(out), parts<T>(std::ranges::size(in), op), dtype<T>,
                         op, root, comm_));
    }

    /// flx_reduce_scatter_block; `in` has as many elements as the `out` of all ranks together.
    template <buffer Out, input_of<std::ranges::range_value_t<Out>> In>
    requires reducible<std::ranges::range_value_t<Out>>
    void reduce_scatter_block(const In &in, Out &&out, flx_op_t op) const {
        using T = std::ranges::range_value_t<Out>;
        same_size(std::ranges::size(in), std::ranges::size(out) * static_cast<std::size_t>(size()));
        check(flx_reduce_scatter_block(std::ranges::data(in), std::ranges::data(out),
                                       parts<T>(std::ranges::size(out), op), dtype<T>, op, comm_));
    }

    /// flx_bcast of all elements; as many on all ranks.
    template <buffer Out>
    requires movable<std::ranges::range_value_t<Out>>
    void bcast(Out &&data, int root) const {
        check(flx_bcast(std::ranges::data(data), bytes(data), FLX_UINT8, root, comm_));
    }
    /// flx_bcast of one value.
    template <movable T>
    requires(!std::ranges::range<T>) void bcast(T &value, int root) const {
        check(flx_bcast(&value, sizeof value, FLX_UINT8, root, comm_));
    }

    /// flx_allgather; `out` has as many elements as the `in` of all ranks together.
    template <buffer Out, input_of<std::ranges::range_value_t<Out>> In>
    requires movable<std::ranges::range_value_t<Out>>
    void allgather(const In &in, Out &&out) const {
        same_size(std::ranges::size(out), std::ranges::size(in) * static_cast<std::size_t>(size()));
        check(flx_allgather(std::ranges::data(in), std::ranges::data(out), bytes(in), FLX_UINT8, comm_));
    }

    /// flx_alltoall; both have as many elements, a multiple of size().
    template <buffer Out, input_of<std::ranges::range_value_t<Out>> In>
    requires movable<std::ranges::range_value_t<Out>>
    void alltoall(const In &in, Out &&out) const {
        same_size(std::ranges::size(in), std::ranges::size(out));
        const auto ranks = static_cast<std::size_t>(size());
        if (std::ranges::size(out) % ranks != 0)
            throw error(FLX_ERR_ARGUMENT, "alltoall of " + std::to_string(std::ranges::size(out)) +
                                              " elements; a multiple of the " + std::to_string(ranks) +
                                              " ranks is needed");
        check(flx_alltoall(std::ranges::data(in), std::ranges::data(out), bytes(out) / ranks, FLX_UINT8, comm_));
    }

    /// flx_alltoallv; counts and displacements are in elements, one for each rank. Only `T` that FLX has, none of them
    /// complex.
    template <reducible T>
    requires(!detail::is_complex<T>) void alltoallv(std::span<const T> in, std::span<const std::size_t> sendcounts,
                                                    std::span<const std::size_t> sdispls, std::span<T> out,
                                                    std::span<const std::size_t> recvcounts,
                                                    std::span<const std::size_t> rdispls) const {
        const auto ranks = static_cast<std::size_t>(size());
        within(in.size(), sendcounts, sdispls, ranks, "sent");
        within(out.size(), recvcounts, rdispls, ranks, "received");
        check(flx_alltoallv(in.data(), out.data(), sendcounts.data(), sdispls.data(), recvcounts.data(), rdispls.data(),
                            dtype<T>, comm_));
    }

    /// flx_alltoallv in place: what each rank's block is replaced with is as long as the block itself.
    template <reducible T>
    requires(!detail::is_complex<T>) void alltoallv(std::span<T> data, std::span<const std::size_t> counts,
                                                    std::span<const std::size_t> displs) const {
        within(data.size(), counts, displs, static_cast<std::size_t>(size()), "exchanged");
        check(
            flx_alltoallv(FLX_IN_PLACE, data.data(), nullptr, nullptr, counts.data(), displs.data(), dtype<T>, comm_));
    }

    /// flx_barrier.
    void barrier() const { check(flx_barrier(comm_)); }

    /// flx_send of all elements to rank `dest`.
    template <std::ranges::contiguous_range In>
    requires movable<std::ranges::range_value_t<In>>
    void send(const In &in, int dest) const {
        check(flx_send(std::ranges::data(in), bytes(in), FLX_UINT8, dest, comm_));
    }
    /// flx_recv of as many elements as `out` has from rank `source`.
    template <buffer Out>
    requires movable<std::ranges::range_value_t<Out>>
    void recv(Out &&out, int source) const {
        check(flx_recv(std::ranges::data(out), bytes(out), FLX_UINT8, source, comm_));
    }
    /// flx_sendrecv: all elements of `in` to rank `dest`, and as many as `out` has from rank `source`.
    template <std::ranges::contiguous_range In, buffer Out>
    requires movable<std::ranges::range_value_t<In>> && movable<std::ranges::range_value_t<Out>>
    void sendrecv(const In &in, int dest, Out &&out, int source) const {
        check(flx_sendrecv(std::ranges::data(in), std::ranges::data(out), bytes(in), bytes(out), FLX_UINT8, dest,
                           source, comm_));
    }

  private:
    template <typename T>
    static constexpr flx_dtype_t dtype = detail::element<T>::dtype;

    template <typename T>
    static std::size_t parts(std::size_t count, flx_op_t op) {
        if (detail::is_complex<T> && op != FLX_SUM && op != FLX_AVG)
            throw error(FLX_ERR_ARGUMENT, "complex numbers can be summed and averaged; other reductions take numbers");
        return count * detail::element<T>::parts;
    }
    template <typename R>
    static std::size_t bytes(const R &range) {
        return std::ranges::size(range) * sizeof(std::ranges::range_value_t<R>);
    }
    static void same_size(std::size_t given, std::size_t wanted) {
        if (given != wanted)
            throw error(FLX_ERR_ARGUMENT, "a buffer has " + std::to_string(given) + " elements; the other asks for " +
                                              std::to_string(wanted));
    }
    static void within(std::size_t elements, std::span<const std::size_t> counts, std::span<const std::size_t> displs,
                       std::size_t ranks, const char *what) {
        if (counts.size() != ranks || displs.size() != ranks)
            throw error(FLX_ERR_ARGUMENT, "alltoallv takes one count and displacement for each rank");
        for (std::size_t rank = 0; rank < ranks; ++rank)
            if (counts[rank] > elements || displs[rank] > elements - counts[rank])
                throw error(FLX_ERR_ARGUMENT, "the block " + std::string(what) + " for rank " + std::to_string(rank) +
                                                  " goes beyond the end of its buffer");
    }

    flx_comm_t comm_ = nullptr;
};

/// A group of calls: those of send, recv, sendrecv, allreduce of buffers, alltoall and alltoallv between its making and
/// end() are started together. Without end(), as when an exception flies, the group ends with this object, and its
/// status is lost. It does not outlive the communicator.
class group {
  public:
    /// flx_group_begin.
    explicit group(const communicator &comm) : comm_(comm.get()) { check(flx_group_begin(comm_)); }
    group(const group &) = delete;
    group &operator=(const group &) = delete;
    /// Ends the group if end() has not.
    ~group() {
        if (comm_ != nullptr)
            flx_group_end(comm_);
    }
    /// flx_group_end: returns when all have completed. Called once.
    void end() { check(flx_group_end(std::exchange(comm_, nullptr))); }

  private:
    flx_comm_t comm_;
};

}  // namespace flx
