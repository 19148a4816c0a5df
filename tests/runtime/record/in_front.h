/// \file in_front.h
/// Tests that are the library in front of MPI, in which libflx looks for a function by name.
#pragma once

#include "runtime/record/passed_calls.h"

namespace flx::record {

PassedCalls &passed();
CallRecord bcast(uint64_t bytes, uint32_t signature = 5);

}  // namespace flx::record
