/// \file host_copies.h
/// A GPU's copy engines as one more path for host memory (runtime/shm/memory/copy_engine.h): up into memory of the GPU,
/// and down again to where it belongs, both ways at once. Also where FLX was built without CUDA, which then has none.
#pragma once

#include <memory>
#include <string>

#include "runtime/shm/memory/copy_engine.h"

namespace flx::cuda {

/// `nth`: this rank's place on its host. Takes the GPU that the calling thread has chosen where the program uses one,
/// else one that it uses, else, if `opens`, the nth of the host. In a context of FLX's own, which takes a tenth of a
/// second to make and half a GiB of the GPU: the program sees nothing of it, and neither waits for the other. Null: not
/// now, or for good, and `why` says so.
std::unique_ptr<shm::CopyEngine> host_copies(int nth, bool opens, std::string &why);

}  // namespace flx::cuda
