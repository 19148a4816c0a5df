/// \file exports.h
/// What programs see of this library, by NCCL's names.
#pragma once

#include "runtime/front/nccl/functions.h"

#define FLX_EXPORT extern "C" __attribute__((visibility("default")))

#define FLX_NCCL_DECLARE(RESULT, NAME, PARAMETERS, ARGUMENTS) FLX_EXPORT RESULT NAME PARAMETERS;
FLX_NCCL_ALL(FLX_NCCL_DECLARE)
#undef FLX_NCCL_DECLARE
