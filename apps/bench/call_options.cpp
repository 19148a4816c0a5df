#include "apps/bench/call_options.h"

namespace flx::bench {

Job job_of(const CallOptions &options, MPI_Comm comm) {
    Job job;
    job.kind = options.collective;
    job.dtype = options.dtype;
    job.op = options.op;
    job.root = options.root;
    job.in_place = options.in_place;
    MPI_Comm_rank(comm, &job.rank);
    MPI_Comm_size(comm, &job.ranks);
    return job;
}

Shape shape_of(const CallOptions &options, uint64_t bytes, int ranks) {
    return shape_for(options.collective, bytes, options.dtype, ranks, options.traffic);
}

std::vector<Shape> shapes_of(const CallOptions &options, int ranks) {
    std::vector<Shape> shapes;
    for (const uint64_t bytes : options.sizes) {
        const Shape shape = shape_of(options, bytes, ranks);
        if (shapes.empty() || shapes.back().bytes != shape.bytes) {
            shapes.push_back(shape);
        }
    }
    return shapes;
}

}  // namespace flx::bench
