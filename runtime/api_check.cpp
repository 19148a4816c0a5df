/// The checks that public functions share.
#include <algorithm>

#include "api.h"
#include "log.h"

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

Status need(const void *pointer, const char *name) {
    if (pointer == nullptr)
        return fail(FLX_ERR_ARGUMENT, "{} is null", name);
    return {};
}

Status check_comm(flx_comm_t comm) {
    if (comm == nullptr)
        return fail(FLX_ERR_ARGUMENT, "comm is null; flx_comm_create makes one");
    return {};
}

Status check_dtype(flx_dtype_t dtype) {
    if (!valid(dtype))
        return fail(FLX_ERR_ARGUMENT,
                    "dtype {} is not known; FLX_INT8 (0) to FLX_F64_F64 ({}) are, and what flx_dtype_create "
                    "made",
                    static_cast<int>(dtype), kAllDtypes - 1);
    return {};
}

Status check_op(flx_op_t op) {
    if (!valid(op))
        return fail(FLX_ERR_ARGUMENT,
                    "op {} is not known; FLX_SUM (0) to FLX_MAXLOC ({}) are, and what flx_op_create made",
                    static_cast<int>(op), kAllOps - 1);
    return {};
}

Status check_root(int root, const Communicator &comm) {
    if (root < 0 || root >= comm.size())
        return fail(FLX_ERR_ARGUMENT, "root {} is not a rank of the communicator; 0 to {} are", root, comm.size() - 1);
    return {};
}

/// The whole vector must have an address range.
Status check_count(size_t count, flx_dtype_t dtype, int blocks) {
    size_t bytes = 0;  // divisions would take longer than a small call's other checks together
    if (__builtin_mul_overflow(count, size_of(dtype), &bytes) ||
        __builtin_mul_overflow(bytes, static_cast<size_t>(blocks), &bytes) || bytes > SIZE_MAX / 2)
        return fail(FLX_ERR_ARGUMENT, "count {} of {} ranks is larger than memory", count, blocks);
    return {};
}

Status check_buffer(const void *buffer, const char *name, size_t count) {
    if (count == 0 || (buffer != nullptr && buffer != FLX_IN_PLACE))
        return {};
    return fail(FLX_ERR_ARGUMENT, "{} is {}; a buffer of {} elements is needed", name,
                buffer == nullptr ? "null" : "FLX_IN_PLACE", count);
}

Status check_overlap(const void *in, size_t in_bytes, const void *out, size_t out_bytes) {
    const auto *a = static_cast<const std::byte *>(in);
    const auto *b = static_cast<const std::byte *>(out);
    if (in_bytes == 0 || out_bytes == 0 || a + in_bytes <= b || b + out_bytes <= a)
        return {};
    return fail(FLX_ERR_ARGUMENT,
                "sendbuf and recvbuf overlap by {} bytes; they must be apart, or the call in place (FLX_IN_PLACE)",
                std::min(a + in_bytes, b + out_bytes) - std::max(a, b));
}

Status check_on_host(const void *buffer, const char *name) {
    if (cuda::on_device(buffer))
        return fail(FLX_ERR_UNSUPPORTED,
                    "{} is GPU memory, which this call does not take; the blocking allreduce, reduce, "
                    "reduce_scatter_block, allgather, bcast, alltoall, alltoallv (not in place), send, recv and "
                    "sendrecv do",
                    name);
    return {};
}

Status check_for_device(const Operation &operation) {
    if (operation.dtype < kDtypes && operation.op < kOps)
        return {};
    return fail(FLX_ERR_UNSUPPORTED,
                "{} of {} in GPU memory; FLX_INT8 to FLX_F64 and FLX_SUM to FLX_AVG are served there",
                name_of(operation.op), name_of(operation.dtype));
}

}  // namespace flx::api
