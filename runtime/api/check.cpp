/// The checks that public functions share.
#include "runtime/api/api.h"
#include "runtime/base/log.h"

namespace flx::api {

namespace {

std::string &last_error() {
    thread_local std::string sentence;
    return sentence;
}

}  // namespace

flx_status_t finish(const Status &status) {
    if (!status.ok())
        last_error() = status.sentence();
    return status.code();
}

const char *last_sentence() {
    return last_error().c_str();
}

Status check_on_host(const void *buffer, const char *name) {
    if (cuda::on_device(buffer))
        return fail(Fault::call_not_on_gpu,
                    "{} is GPU memory, which this call does not take; the blocking allreduce, reduce, "
                    "reduce_scatter_block, allgather, bcast, alltoall, alltoallv (not in place), send, recv and "
                    "sendrecv do",
                    name);
    return {};
}

Status check_for_device(const Operation &operation) {
    if (has_kernel(operation.dtype, operation.op))
        return {};
    return fail(
        Fault::type_not_on_gpu,
        "{} of {} in GPU memory; FLX_INT8 to FLX_F64, FLX_F8E4M3, FLX_F8E5M2 and FLX_SUM to FLX_AVG are served there",
        name_of(operation.op), name_of(operation.dtype));
}

}  // namespace flx::api
