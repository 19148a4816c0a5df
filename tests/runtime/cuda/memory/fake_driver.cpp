#include "tests/runtime/cuda/memory/fake_driver.h"

#include <cuda.h>

#undef cuGetProcAddress

namespace flx::test {

FakeDriver &fake_driver() {
    static FakeDriver driver;
    return driver;
}

namespace {
CUresult refuse() {
    ++fake_driver().asked_for_more;
    return CUDA_ERROR_NO_DEVICE;
}
}  // namespace

}  // namespace flx::test

using flx::test::fake_driver;
using flx::test::refuse;

// What a program, or the runtime within it, calls first.
extern "C" {
CUresult cuCtxGetCurrent(CUcontext *context) {
    ++fake_driver().asked_for_context;
    *context = nullptr;
    return fake_driver().initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}
CUresult cuInit(unsigned /*flags*/) {
    return refuse();
}
CUresult cuDriverGetVersion(int * /*version*/) {
    return refuse();
}
CUresult cuGetProcAddress(const char * /*name*/, void ** /*address*/, int /*version*/, cuuint64_t /*flags*/) {
    return refuse();
}
CUresult cuGetProcAddress_v2(const char * /*name*/, void ** /*address*/, int /*version*/, cuuint64_t /*flags*/,
                             CUdriverProcAddressQueryResult * /*found*/) {
    return refuse();
}
}
