#include "runtime/cuda/memory/graph_use.h"

#include <utility>

#include "runtime/cuda/memory/driver.h"

namespace flx::cuda {
namespace {

using Mark = std::shared_ptr<const char>;

/// Called by a thread of CUDA's, which may call nothing of CUDA.
void let_go(void *mark) {
    delete static_cast<Mark *>(mark);
}

}  // namespace

Status GraphUse::begin(CUstream_st *stream) {
    Capture capture;
    FLX_TRY(capture_of(stream, capture));
    if (capture.number == capture_)
        return {};
    auto mark = std::make_unique<Mark>(mark_);
    cudaUserObject_t object = nullptr;
    FLX_TRY_CUDA(cudaUserObjectCreate(&object, mark.get(), let_go, 1, cudaUserObjectNoDestructorSync));
    (void)mark.release();  // it is the object's
    const cudaError_t retained = cudaGraphRetainUserObject(capture.graph, object, 1, cudaGraphUserObjectMove);
    if (retained != cudaSuccess)
        cudaUserObjectRelease(object, 1);
    FLX_TRY(check(retained, "cudaGraphRetainUserObject"));
    capture_ = capture.number;
    return {};
}

}  // namespace flx::cuda
