/// The names that C programs call to make communicators. MPI makes them; all that is noted is in which order those of
/// the same members were made, which their ranks know alike (seen.h).
#include "runtime/front/mpi/calls.h"
#include "runtime/front/mpi/seen.h"

#pragma GCC visibility push(default)

#define LIST(...) __VA_ARGS__
#define MAKES(NAME, PARAMETERS, ARGUMENTS)                      \
    extern "C" int MPI_##NAME(PARAMETERS, MPI_Comm *made) {     \
        const int code = FLX_NEXT(NAME)(ARGUMENTS, made);       \
        if (code == MPI_SUCCESS)                                \
            flx::preload::Library::instance().note_made(*made); \
        return code;                                            \
    }

MAKES(Comm_dup, LIST(MPI_Comm comm), LIST(comm))
MAKES(Comm_dup_with_info, LIST(MPI_Comm comm, MPI_Info info), LIST(comm, info))
MAKES(Comm_split, LIST(MPI_Comm comm, int color, int key), LIST(comm, color, key))
MAKES(Comm_split_type, LIST(MPI_Comm comm, int type, int key, MPI_Info info), LIST(comm, type, key, info))
MAKES(Comm_create, LIST(MPI_Comm comm, MPI_Group group), LIST(comm, group))
MAKES(Comm_create_group, LIST(MPI_Comm comm, MPI_Group group, int tag), LIST(comm, group, tag))
MAKES(Cart_create, LIST(MPI_Comm comm, int count, const int dims[], const int periods[], int reorder),
      LIST(comm, count, dims, periods, reorder))
MAKES(Cart_sub, LIST(MPI_Comm comm, const int remain[]), LIST(comm, remain))
MAKES(Graph_create, LIST(MPI_Comm comm, int count, const int index[], const int edges[], int reorder),
      LIST(comm, count, index, edges, reorder))
MAKES(Dist_graph_create,
      LIST(MPI_Comm comm, int count, const int sources[], const int degrees[], const int destinations[],
           const int weights[], MPI_Info info, int reorder),
      LIST(comm, count, sources, degrees, destinations, weights, info, reorder))
MAKES(Dist_graph_create_adjacent,
      LIST(MPI_Comm comm, int indegree, const int sources[], const int source_weights[], int outdegree,
           const int destinations[], const int destination_weights[], MPI_Info info, int reorder),
      LIST(comm, indegree, sources, source_weights, outdegree, destinations, destination_weights, info, reorder))
MAKES(Intercomm_merge, LIST(MPI_Comm comm, int high), LIST(comm, high))

#pragma GCC visibility pop
