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

flx_status_t failed(const Status &status) {
    last_error() = status.sentence();
    return status.code();
}

const char *last_sentence() {
    return last_error().c_str();
}

namespace wrong {

Status null(const char *name) {
    return fail(Fault::null_pointer, "{} is null; the call needs an address there", name);
}

Status comm() {
    return fail(Fault::null_pointer, "comm is null; flx_comm_create makes one");
}

Status dtype(flx_dtype_t dtype) {
    return fail(Fault::unknown_dtype,
                "dtype {} is not known; FLX_INT8 (0) to FLX_F8E5M2 ({}) are, and what flx_dtype_create made",
                static_cast<int>(dtype), kAllDtypes - 1);
}

Status op(flx_op_t op) {
    return fail(Fault::unknown_op,
                "op {} is not known; FLX_SUM (0) to FLX_MAXLOC ({}) are, and what flx_op_create made",
                static_cast<int>(op), kAllOps - 1);
}

Status root(int root, int size) {
    return fail(Fault::no_such_rank, "root {} is not a rank of the communicator; 0 to {} are", root, size - 1);
}

Status count(size_t count, int blocks) {
    return fail(Fault::count_too_large, "count {}{} is larger than memory; all its elements must have addresses", count,
                blocks == 1 ? "" : fmt::format(" of {} ranks", blocks));
}

Status part(size_t value, const char *what, int rank) {
    return fail(Fault::count_too_large, "{} {} of rank {} is larger than memory; all elements must have addresses",
                what, value, rank);
}

Status buffer(const void *buffer, const char *name, size_t count) {
    return fail(Fault::no_buffer, "{} is {}; a buffer of {} elements is needed", name,
                buffer == nullptr ? "null" : "FLX_IN_PLACE", count);
}

Status overlap(size_t bytes) {
    return fail(Fault::buffers_overlap,
                "sendbuf and recvbuf overlap by {} bytes; they must be apart, or the call in place (FLX_IN_PLACE)",
                bytes);
}

}  // namespace wrong

Status check_for_device(const Operation &operation) {
    if (has_kernel(operation.dtype, operation.op))
        return {};
    return fail(
        Fault::type_not_on_gpu,
        "{} of {} in GPU memory; FLX_INT8 to FLX_F64, FLX_F8E4M3, FLX_F8E5M2 and FLX_SUM to FLX_AVG are served there",
        name_of(operation.op), name_of(operation.dtype));
}

}  // namespace flx::api
