/// Non-blocking and persistent collectives of Fortran programs: counted, then MPI's own function of that name is
/// called, which is in another library than C's.
#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "calls.h"
#include "passed_on.h"

// The address that stands for MPI_IN_PLACE in Fortran; of libmpi.
extern "C" char mpi_fortran_in_place_;  // NOLINT(readability-identifier-naming): MPI names it

namespace {

using flx::preload::Collective;
using flx::preload::Form;

/// Where a call's arguments stand, from 0. Every argument is an address.
struct Places {
    Collective collective;
    int arguments;  ///< without info, request and ierror
    int count;      ///< -1: no data
    int type;
    enum { one, each_rank, per_rank } counts;  ///< `count` is of all data, of each rank's, or an array
    int not_in_place;  ///< the buffer without which `count` and `type` mean nothing; -1: they always do
};

using C = Collective;
constexpr Places kAllgather = {C::allgather, 7, 4, 5, Places::each_rank, -1};
constexpr Places kAllgatherv = {C::allgatherv, 8, 4, 6, Places::per_rank, -1};
constexpr Places kAllreduce = {C::allreduce, 6, 2, 3, Places::one, -1};
constexpr Places kAlltoall = {C::alltoall, 7, 4, 5, Places::each_rank, -1};
constexpr Places kAlltoallv = {C::alltoallv, 9, 5, 7, Places::per_rank, -1};
constexpr Places kAlltoallw = {C::alltoallw, 9, 5, 7, Places::per_rank, -1};
constexpr Places kBarrier = {C::barrier, 1, -1, -1, Places::one, -1};
constexpr Places kBcast = {C::bcast, 5, 1, 2, Places::one, -1};
constexpr Places kExscan = {C::exscan, 6, 2, 3, Places::one, -1};
constexpr Places kGather = {C::gather, 8, 1, 2, Places::one, 0};
constexpr Places kGatherv = {C::gatherv, 9, 1, 2, Places::one, 0};
constexpr Places kReduce = {C::reduce, 7, 2, 3, Places::one, -1};
constexpr Places kReduceScatter = {C::reduce_scatter, 6, 2, 3, Places::per_rank, -1};
constexpr Places kReduceScatterBlock = {C::reduce_scatter_block, 6, 2, 3, Places::each_rank, -1};
constexpr Places kScan = {C::scan, 6, 2, 3, Places::one, -1};
constexpr Places kScatter = {C::scatter, 8, 4, 5, Places::one, 3};
constexpr Places kScatterv = {C::scatterv, 9, 5, 6, Places::one, 4};

size_t bytes_of(const Places &places, void *const *addresses, MPI_Comm comm) {
    using flx::preload::bytes_of;
    if (places.count < 0 || (places.not_in_place >= 0 && addresses[places.not_in_place] == &mpi_fortran_in_place_))
        return 0;
    const auto *count = static_cast<const MPI_Fint *>(addresses[places.count]);
    const auto *type = static_cast<const MPI_Fint *>(addresses[places.type]);
    if (places.collective == Collective::alltoallw) {
        size_t bytes = 0;
        for (int rank = 0; rank < flx::preload::size_of(comm); ++rank)
            bytes += bytes_of(count[rank], PMPI_Type_f2c(type[rank]));
        return bytes;
    }
    int64_t elements = 0;
    if (places.counts == Places::per_rank)
        elements = flx::preload::total_of(count, comm);
    else
        elements =
            static_cast<int64_t>(*count) * (places.counts == Places::each_rank ? flx::preload::size_of(comm) : 1);
    return bytes_of(elements, PMPI_Type_f2c(*type));
}

void count(const Places &places, Form form, void *const *addresses) {
    MPI_Comm comm = PMPI_Comm_f2c(*static_cast<const MPI_Fint *>(addresses[places.arguments - 1]));
    flx::preload::pass_on(places.collective, form, comm, [&] { return bytes_of(places, addresses, comm); });
}

/// MPI's function, which a module that was loaded on its own may have brought with it.
void *next(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (found == nullptr)
        if (void *library = dlopen("libmpi_mpifh.so.40", RTLD_LAZY); library != nullptr)
            found = dlsym(library, name);
    if (found == nullptr) {
        std::fprintf(stderr, "flx_mpi: MPI's Fortran library, which has %s, is not to be found\n", name);
        std::abort();
    }
    return found;
}

}  // namespace

#pragma GCC visibility push(default)

#define LIST(...) __VA_ARGS__

/// Defines ompi_LOWER_f (or ompix_), and the manglings of mpi_LOWER as other names of it.
#define NAMES(PREFIX, BIG, LOWER, UPPER, PLACES, FORM, PARAMETERS, ARGUMENTS)                                   \
    extern "C" void o##PREFIX##_##LOWER##_f(PARAMETERS);                                                        \
    extern "C" void PREFIX##_##LOWER(PARAMETERS) __attribute__((alias("o" #PREFIX "_" #LOWER "_f")));           \
    extern "C" void PREFIX##_##LOWER##_(PARAMETERS) __attribute__((alias("o" #PREFIX "_" #LOWER "_f")));        \
    extern "C" void PREFIX##_##LOWER##__(PARAMETERS) __attribute__((alias("o" #PREFIX "_" #LOWER "_f")));       \
    extern "C" void BIG##_##UPPER(PARAMETERS) __attribute__((alias("o" #PREFIX "_" #LOWER "_f")));              \
    void o##PREFIX##_##LOWER##_f(PARAMETERS) {                                                                  \
        static const auto function = reinterpret_cast<void (*)(PARAMETERS)>(next("o" #PREFIX "_" #LOWER "_f")); \
        const std::array addresses = {ARGUMENTS};                                                               \
        count(PLACES, FORM, addresses.data());                                                                  \
        function(ARGUMENTS);                                                                                    \
    }

/// Without blocking there is a request before ierror, and in persistent calls an info before that.
#define PASSED_ON(LOWER, UPPER, PLACES, PARAMETERS, ARGUMENTS)                                                   \
    NAMES(mpi, MPI, i##LOWER, I##UPPER, PLACES, Form::nonblocking, LIST(PARAMETERS, void *request, void *error), \
          LIST(ARGUMENTS, request, error))                                                                       \
    NAMES(mpix, MPIX, LOWER##_init, UPPER##_INIT, PLACES, Form::persistent,                                      \
          LIST(PARAMETERS, void *info, void *request, void *error), LIST(ARGUMENTS, info, request, error))

#define ADDRESSES_1 LIST(void *a)
#define ADDRESSES_5 LIST(void *a, void *b, void *c, void *d, void *e)
#define ADDRESSES_6 LIST(void *a, void *b, void *c, void *d, void *e, void *f)
#define ADDRESSES_7 LIST(void *a, void *b, void *c, void *d, void *e, void *f, void *g)
#define ADDRESSES_8 LIST(void *a, void *b, void *c, void *d, void *e, void *f, void *g, void *h)
#define ADDRESSES_9 LIST(void *a, void *b, void *c, void *d, void *e, void *f, void *g, void *h, void *i)
#define VALUES_1 LIST(a)
#define VALUES_5 LIST(a, b, c, d, e)
#define VALUES_6 LIST(a, b, c, d, e, f)
#define VALUES_7 LIST(a, b, c, d, e, f, g)
#define VALUES_8 LIST(a, b, c, d, e, f, g, h)
#define VALUES_9 LIST(a, b, c, d, e, f, g, h, i)

PASSED_ON(allgather, ALLGATHER, kAllgather, LIST(ADDRESSES_7), LIST(VALUES_7))
PASSED_ON(allgatherv, ALLGATHERV, kAllgatherv, LIST(ADDRESSES_8), LIST(VALUES_8))
PASSED_ON(allreduce, ALLREDUCE, kAllreduce, LIST(ADDRESSES_6), LIST(VALUES_6))
PASSED_ON(alltoall, ALLTOALL, kAlltoall, LIST(ADDRESSES_7), LIST(VALUES_7))
PASSED_ON(alltoallv, ALLTOALLV, kAlltoallv, LIST(ADDRESSES_9), LIST(VALUES_9))
PASSED_ON(alltoallw, ALLTOALLW, kAlltoallw, LIST(ADDRESSES_9), LIST(VALUES_9))
PASSED_ON(barrier, BARRIER, kBarrier, LIST(ADDRESSES_1), LIST(VALUES_1))
PASSED_ON(bcast, BCAST, kBcast, LIST(ADDRESSES_5), LIST(VALUES_5))
PASSED_ON(exscan, EXSCAN, kExscan, LIST(ADDRESSES_6), LIST(VALUES_6))
PASSED_ON(gather, GATHER, kGather, LIST(ADDRESSES_8), LIST(VALUES_8))
PASSED_ON(gatherv, GATHERV, kGatherv, LIST(ADDRESSES_9), LIST(VALUES_9))
PASSED_ON(reduce, REDUCE, kReduce, LIST(ADDRESSES_7), LIST(VALUES_7))
PASSED_ON(reduce_scatter, REDUCE_SCATTER, kReduceScatter, LIST(ADDRESSES_6), LIST(VALUES_6))
PASSED_ON(reduce_scatter_block, REDUCE_SCATTER_BLOCK, kReduceScatterBlock, LIST(ADDRESSES_6), LIST(VALUES_6))
PASSED_ON(scan, SCAN, kScan, LIST(ADDRESSES_6), LIST(VALUES_6))
PASSED_ON(scatter, SCATTER, kScatter, LIST(ADDRESSES_8), LIST(VALUES_8))
PASSED_ON(scatterv, SCATTERV, kScatterv, LIST(ADDRESSES_9), LIST(VALUES_9))

#pragma GCC visibility pop
