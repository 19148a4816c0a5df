/// \file calls.h
/// MPI's collectives with FLX in front of them, in all forms: each takes MPI's arguments, serves the call or passes it
/// to PMPI_, and returns MPI's code. The names that programs call, of C and of Fortran, lead here.
///
/// Which way a call goes depends on what all ranks know alike: reductions name the same type and reduction everywhere;
/// calls that move data are served whatever their types, which may differ between ranks, since the bytes do not. What
/// one rank alone may have wrong decides nothing about the way: that rank's error handler gets what MPI gives, and it
/// takes part in neither, or in FLX's call with the length that all ranks name (docs/preload.md, "How a call is
/// routed").
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/front/mpi/arguments/numbers.h"
#include "runtime/front/mpi/arguments/staging.h"
#include "runtime/front/mpi/communicators.h"
#include "runtime/front/mpi/libraries/flx_library.h"
#include "runtime/front/mpi/requests.h"

#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

// Persistent collectives: Open MPI 4.1's extension, whose names are its own, or MPI 4's. Open MPI 5 has these, too,
// though it says that it is MPI 3.1.
#ifdef OMPI_HAVE_MPI_EXT_PCOLLREQ
#include "mpiext/pmpiext_pcollreq_c.h"
#define FLX_MPI_PERSISTENT(NAME) MPIX_##NAME##_init
#define FLX_PMPI_PERSISTENT(NAME) PMPIX_##NAME##_init
#elif MPI_VERSION >= 4 || (defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5)
#define FLX_MPI_PERSISTENT(NAME) MPI_##NAME##_init
#define FLX_PMPI_PERSISTENT(NAME) PMPI_##NAME##_init
#else
#define FLX_PMPI_PERSISTENT(NAME) nullptr
#endif

// Functions with MPI_Count are MPI 4's. Where there are none, nobody calls them.
#if MPI_VERSION >= 4
#define FLX_MPI_LARGE(NAME) MPI_##NAME##_c
#define FLX_PMPI_LARGE(NAME) PMPI_##NAME##_c
#else
#define FLX_PMPI_LARGE(NAME) PMPI_##NAME
#endif

namespace flx::preload {

/// The form in which the program calls, and where its request goes if the form has one.
struct How {
    Form form = Form::blocking;
    MPI_Request *request = nullptr;
    MPI_Info info = MPI_INFO_NULL;
    bool large = false;  ///< one of MPI 4's functions with MPI_Count, such as MPI_Bcast_c; they block
};

int allgather(const How &how, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
              MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm);
int allgatherv(const How &how, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
               Numbers recvcounts, Numbers displs, MPI_Datatype recvtype, MPI_Comm comm);
int allreduce(const How &how, const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype type, MPI_Op op,
              MPI_Comm comm);
int alltoall(const How &how, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
             MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm);
int alltoallv(const How &how, const void *sendbuf, Numbers sendcounts, Numbers sdispls, MPI_Datatype sendtype,
              void *recvbuf, Numbers recvcounts, Numbers rdispls, MPI_Datatype recvtype, MPI_Comm comm);
int alltoallw(const How &how, const void *sendbuf, Numbers sendcounts, Numbers sdispls, const MPI_Datatype *sendtypes,
              void *recvbuf, Numbers recvcounts, Numbers rdispls, const MPI_Datatype *recvtypes, MPI_Comm comm);
int barrier(const How &how, MPI_Comm comm);
int bcast(const How &how, void *buffer, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm);
int exscan(const How &how, const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype type, MPI_Op op,
           MPI_Comm comm);
int gather(const How &how, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
           MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm);
int gatherv(const How &how, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
            Numbers recvcounts, Numbers displs, MPI_Datatype recvtype, int root, MPI_Comm comm);
int reduce(const How &how, const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype type, MPI_Op op, int root,
           MPI_Comm comm);
int reduce_scatter(const How &how, const void *sendbuf, void *recvbuf, Numbers recvcounts, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm);
int reduce_scatter_block(const How &how, const void *sendbuf, void *recvbuf, MPI_Count recvcount, MPI_Datatype type,
                         MPI_Op op, MPI_Comm comm);
int scan(const How &how, const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype type, MPI_Op op,
         MPI_Comm comm);
int scatter(const How &how, const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
            MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm);
int scatterv(const How &how, const void *sendbuf, Numbers sendcounts, Numbers displs, MPI_Datatype sendtype,
             void *recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm);

/// What speaks against FLX as far as the arguments say.
struct Objection {
    Reason why = Reason::none;
    int error = MPI_SUCCESS;  ///< where `why` is `invalid`: MPI's class for what is wrong on this rank
    int root = -1;            ///< of a call that has one, for others to see
};

/// MPI_SUCCESS is no objection.
inline Objection wrong(int error) {
    return error == MPI_SUCCESS ? Objection{} : Objection{Reason::invalid, error};
}

/// MPI's class for a buffer that must not be MPI_IN_PLACE or the other one, in most calls.
#ifdef MPICH_VERSION
inline constexpr int kInPlaceError = MPI_ERR_BUFFER;
#else
inline constexpr int kInPlaceError = MPI_ERR_ARG;
#endif

/// Whether MPI's error says that a rank's arguments are wrong, which MPI finds before it takes part in the call.
bool is_about_arguments(int code);

/// One call on its way: finds out whether FLX serves it, counts it, and holds the communicator while it begins or, if
/// it blocks, while it runs.
class Call {
  public:
    /// `bytes` are this rank's, for the statistics; `agreed` those that all ranks know alike, which decide the route,
    /// or kBytesUnknown. Data on a GPU that whoever gets the call cannot read there have mirrors from here on.
    Call(const How &how, Collective collective, MPI_Comm comm, size_t bytes, Objection objection,
         const Description &describe = {})
        : Call(how, collective, comm, bytes, bytes, objection, describe) {}
    Call(const How &how, Collective collective, MPI_Comm comm, size_t bytes, size_t agreed, Objection objection,
         const Description &describe = {});
    ~Call();
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;
    [[nodiscard]] bool served() const { return group_ != nullptr; }
    [[nodiscard]] int rank() const { return group_->rank; }
    [[nodiscard]] int size() const { return group_->size; }
    // NOLINTNEXTLINE(clang-analyzer-core.uninitialized.UndefReturn): it takes what is moved from for null
    [[nodiscard]] Staging &staging() { return operation_ != nullptr ? operation_->staging : staging_; }
    /// Where what the program sends from, or receives into, at `address` is for this call: there, or in a mirror.
    template <typename Address>
    [[nodiscard]] Address sent(Address address) {
        return moved(address, mirrored_ ? staging().mirrors->sent_moved() : 0);
    }
    template <typename Address>
    [[nodiscard]] Address received(Address address) {
        return moved(address, mirrored_ ? staging().mirrors->received_moved() : 0);
    }
    /// The same of all blocks.
    void follow_sent(std::vector<PackedBlocks::Block> &blocks);
    void follow_received(std::vector<PackedBlocks::Block> &blocks);
    /// Where FLX takes the call on GPUs, what the program has done there is over afterwards, and this rank's data are
    /// taken there if they are elsewhere: `in` is read, `out` is written in the end, and read before if it is `filled`.
    /// MPI_SUCCESS or an error.
    int lift(const void *&in, size_t in_bytes, void *&out, size_t out_bytes, bool filled, bool written = true);
    /// Whether that takes them there.
    [[nodiscard]] bool lifts() const { return on_gpus_ && (mirrored_ || !where_->any_on_gpu()); }
    /// Room for counts and displacements; `size` numbers each.
    size_t *numbers(int lists);

    /// Calls that of FLX's functions which is of the call's form. One that blocks has ended on return.
    template <typename... P>
    int carry_out(flx_status_t (*blocking)(P...),
                  std::type_identity_t<flx_status_t (*)(P..., flx_request_t *)> nonblocking,
                  std::type_identity_t<flx_status_t (*)(P..., flx_request_t *)> persistent,
                  std::type_identity_t<P>... arguments) {
        if (how_.form == Form::blocking) {
            const flx_status_t status = blocking(arguments...);
            if (status == FLX_SUCCESS) [[likely]] {
                ++group_->calls;
                const int code = staging_.write(comm_);
                took_part(Route::flx);
                return code == MPI_SUCCESS && staging_.late_error != MPI_SUCCESS ? refuse(staging_.late_error) : code;
            }
            return finish(status, *group_, comm_);
        }
        const auto function = how_.form == Form::nonblocking ? nonblocking : persistent;
        return hand_out(function(arguments..., &operation_->request));
    }
    [[nodiscard]] flx_comm_t flx() const { return group_->flx; }
    /// This rank's arguments are wrong, and it takes no further part: its error handler gets `error`, the call returns
    /// it.
    int refuse(int error);
    /// What FLX does not serve: the call goes to MPI, or is refused. `large` is the function of MPI 4's that blocks and
    /// ends in _c. The others get counts that came as `int`.
    template <typename... P, typename... L, typename... A>
    int pass_on(int (*blocking)(P...), std::type_identity_t<int (*)(P..., MPI_Request *)> nonblocking,
                std::type_identity_t<int (*)(P..., MPI_Info, MPI_Request *)> persistent, int (*large)(L...),
                const A &...arguments) {
        if (error_ != MPI_SUCCESS)
            return refuse(error_);
        if (how_.form == Form::blocking) {
            const int code = [&] {
                const Seen seen(comm_, said_);
                const int result =
                    how_.large ? large(static_cast<L>(arguments)...) : blocking(static_cast<P>(arguments)...);
                if (result != MPI_SUCCESS && is_about_arguments(result)) [[unlikely]]
                    seen.takes_back();
                return result;
            }();
            if (code == MPI_SUCCESS || !is_about_arguments(code))
                took_part(Route::mpi);
            return mirrored_ && code == MPI_SUCCESS ? staging_.write(comm_) : code;
        }
        // What is made to be started later is no call yet.
        std::optional<Seen> seen;
        if (how_.form == Form::nonblocking)
            seen.emplace(comm_, said_);
        MPI_Request *const request = mirrored_ ? &operation_->mpi : how_.request;
        const int code = how_.form == Form::nonblocking ? nonblocking(static_cast<P>(arguments)..., request)
                                                        : persistent(static_cast<P>(arguments)..., how_.info, request);
        if (code != MPI_SUCCESS && seen && is_about_arguments(code)) [[unlikely]]
            seen->takes_back();
        return mirrored_ && code == MPI_SUCCESS ? hand_out() : code;
    }

  private:
    template <typename Address>
    static Address moved(Address address, ptrdiff_t by) {
        return by == 0 ? address : reinterpret_cast<Address>(reinterpret_cast<uintptr_t>(address) + by);
    }
    int hand_out(flx_status_t status);
    int hand_out();
    Group *find_group(size_t agreed, Reason &why);
    [[nodiscard]] bool matters_where(Reason why) const;
    bool stays_off_mpi(Group *&group, Reason &why);
    [[nodiscard]] Memory memory() const { return where_ != nullptr ? where_->memory() : Memory::none; }
    void mirror();
    void complain(const std::string &why);
    /// The call blocked and is over; where FLX and MPI are compared, that is noted.
    void took_part(Route route) {
        if (compared_ != nullptr || habits_ != nullptr)
            note(route);
    }
    void note(Route route);
    void begin_timing();

    const How &how_;
    Collective collective_;
    MPI_Comm comm_;
    Said said_;
    int error_ = MPI_SUCCESS;  ///< that this rank's arguments are, where FLX serves the others
    Group *group_ = nullptr;
    Group *compared_ = nullptr;  ///< whose routes hear of the call
    CallClass class_{0};
    const Whereabouts *where_ = nullptr;  ///< null where it does not matter
    std::unique_ptr<const Whereabouts> made_where_;
    Habits *habits_ = nullptr;  ///< which hear of the call
    CallClass habit_{0};        ///< its class there
    bool on_gpus_ = false;      ///< FLX's collective is one on GPUs
    bool mirrored_ = false;
    int64_t began_ns_ = 0;  ///< 0: its time is not wanted
    std::optional<Occupied> occupied_;
    Staging staging_;                       ///< of one that blocks
    std::unique_ptr<Operation> operation_;  ///< of one that does not
};

/// The function of that name behind this library: a tool's (profilers, tracers), where one is linked or preloaded,
/// which would not begin without its MPI_Init; else MPI's own.
void *next_of(const char *name);
#define FLX_NEXT(NAME)                                                                          \
    ([] {                                                                                       \
        static void *const next = flx::preload::next_of("MPI_" #NAME);                          \
        return next != nullptr ? reinterpret_cast<decltype(&PMPI_##NAME)>(next) : &PMPI_##NAME; \
    }())

#define FLX_MPI_FORMS(NAME, SMALL) PMPI_##NAME, PMPI_I##SMALL, FLX_PMPI_PERSISTENT(NAME), FLX_PMPI_LARGE(NAME)
#define FLX_FORMS(NAME) flx_##NAME.get(), flx_i##NAME.get(), flx_##NAME##_init.get()

/// Ranks of `comm`; 0 where it is null or an intercommunicator.
int size_of(MPI_Comm comm);
/// What speaks against a root.
Objection check_root(int root, MPI_Comm comm);

/// Runs a call; no exception (memory, say) leaves the library.
template <typename Body>
int guarded(MPI_Comm comm, Body &&body) {
    try {
        return body();
    } catch (const std::exception &) {
        PMPI_Comm_call_errhandler(comm, MPI_ERR_NO_MEM);
        return MPI_ERR_NO_MEM;
    }
}

}  // namespace flx::preload
